package weft

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weftgo/weft/agrs"
	"github.com/weftgo/weft/alltoall"
	"github.com/weftgo/weft/alltoall/twolevel"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/ep"
)

// exchangers maps names to strategies, ours first. The others are the names that vLLM gives its backends.
var exchangers = []struct{ name, strategy string }{
	{"agrs", "agrs"},
	{"alltoall", "alltoall"},
	{"auto", "auto"},
	{"allgather_reducescatter", "agrs"},
	{"naive", "agrs"},
	{"pplx", "alltoall"},
	{"deepep_high_throughput", "alltoall"},
	{"deepep_low_latency", "alltoall"},
	{"flashinfer_all2allv", "alltoall"},
	{"flashinfer_nvlink_one_sided", "alltoall"},
	{"flashinfer_nvlink_two_sided", "alltoall"},
	{"mori", "alltoall"},
	{"nixl_ep", "alltoall"},
}

// NewExchanger is collective: it makes the exchange strategy of a name. "agrs" gathers all rows and reduce-scatters the
// sums; "alltoall" sends each token only to the ranks that own its experts, and in a world of several nodes (package comm/nodes)
// only once to each node; "auto" chooses (see [ChooseExchanger]; between nodes of GPUs it is alltoall, the only one there). The
// names of vLLM's backends are accepted too: allgather_reducescatter and naive mean agrs, deepep_high_throughput,
// deepep_low_latency, pplx, flashinfer_*, mori and nixl_ep mean alltoall (its mode is ep.Config.LowLatency); a dash is read as an underscore.
//
// An unknown name is an Invalid error that lists the names. A cfg that is wrong, that differs between ranks or that the
// strategy cannot serve is an Invalid error on every rank.
func NewExchanger(ctx context.Context, c *comm.Comm, name string, cfg ep.Config) (ep.Exchanger, error) {
	strategy, err := ExchangerStrategy(name)
	if err != nil {
		return nil, comm.Errorf("new exchanger", c.WorldRank(), comm.Invalid, "%w", err)
	}
	inside, between, levels := nodes.Levels(c)
	if levels && between.Size() == 1 { // one node: its driver can do more than a world of nodes
		c, levels = inside, false
	}
	switch {
	case strategy == "auto" && levels && c.Device().Kind != comm.CPU: // agrs has no kernels there
		strategy = "alltoall"
	case strategy == "auto":
		strategy = ChooseExchanger(c.Device().Kind, c.Size(), cfg)
	}
	if strategy == "agrs" {
		x, err := agrs.New(ctx, c, cfg)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	if levels && (inside.Size() > 1 || c.Device().Kind != comm.CPU) { // NCCL alone launches no kernels of an exchange
		x, err := twolevel.New(ctx, inside, between, cfg)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	x, err := alltoall.New(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// ExchangerStrategy resolves a name that [NewExchanger] accepts to "agrs", "alltoall" or "auto". The error of an unknown name lists
// the known ones.
func ExchangerStrategy(name string) (string, error) {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	var known []string
	for _, e := range exchangers {
		if e.name == plain {
			return e.strategy, nil
		}
		known = append(known, e.name)
	}
	slices.Sort(known[3:])
	return "", fmt.Errorf("unknown exchanger %q; use one of %s", name, strings.Join(known, ", "))
}

// ChooseExchanger is the rule of "auto" for a group of size ranks on devices of a kind. It depends on nothing but its arguments, so that all
// ranks choose alike:
//
//   - one rank: agrs (there is nobody to send to);
//   - what agrs refuses (RankInvariant, LowLatency, MaxRecvRows below size x MaxTokensPerRank): alltoall;
//   - else alltoall if a token is expected to visit few of the ranks ([routing.Placement.ExpectedCopies]), which pays for its
//     extra collective that exchanges counts and for its sorting; agrs if it visits more. On the CPU few means half, near where
//     both were measured to take the same time (docs/performance.md). On GPUs it means three quarters: on
//     one H200 that eight ranks share, alltoall was faster at 5.3 of 8 ranks for 8 to 4,096 tokens a rank, and between GPUs
//     it also sends less; that was not measured.
func ChooseExchanger(kind comm.Kind, size int, cfg ep.Config) string {
	few := 1.0 / 2
	if kind != comm.CPU {
		few = 3.0 / 4
	}
	switch {
	case size <= 1 && !cfg.RankInvariant && !cfg.LowLatency:
		return "agrs"
	case cfg.RankInvariant || cfg.LowLatency || cfg.MaxRecvRows > 0 && cfg.MaxRecvRows < size*cfg.MaxTokensPerRank:
		return "alltoall"
	case cfg.WithDefaults(size).Placement.ExpectedCopies(cfg.TopK) <= few*float64(size):
		return "alltoall"
	}
	return "agrs"
}
