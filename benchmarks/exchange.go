package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/benchmarks/exchange"
	"github.com/weftgo/weft/benchmarks/record"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// definitions of the columns of the MoE table, printed above it.
const definitions = `# time: from a barrier to the end on the slowest rank; p50 and p99 over the iterations, by nearest rank
# logical GB/s: bytes of all row copies that a rank sends, those to itself included, mean over ranks, / p50
# wire GB/s: of these bytes, those that go to another rank, / p50. Rows and fp8 scales count, ids and weights do not.
#   A row of dispatch is hidden x wire type; a row of combine is hidden x type; moe_layer moves both.
# copies/token: ranks that a token is sent to, its own included
# max/mean: (token, expert) pairs computed by the busiest rank / mean over ranks
`

// exchange runs the MoE table: dispatch, combine and the layer, for each backend and number of tokens.
func (s *session) exchange(ctx context.Context, cycle int) error {
	s.preamble()
	fmt.Fprintf(s.screen, "# MoE test starting: hidden %d experts %d topk %d intermediate %d skew %v zipf %v zeros %v\n", s.Hidden, s.Experts,
		s.TopK, s.Intermediate, s.Skew, s.Zipf, s.Zeros)
	fmt.Fprint(s.screen, definitions)
	fmt.Fprintf(s.screen, "# %9s  %10s  %8s  %8s  %8s  %9s  %9s  %8s  %8s  %7s  %8s  %6s\n", "op", "backend", "tokens", "type", "wire",
		"p50", "p99", "logical", "wire", "copies", "max/mean", "#wrong")
	fmt.Fprintf(s.screen, "# %9s  %10s  %8s  %8s  %8s  %9s  %9s  %8s  %8s  %7s  %8s\n", "", "", "(rank)", "", "", "(us)", "(us)", "(GB/s)",
		"(GB/s)", "(token)", "(slots)")
	cells := s.exchangeCells()
	done := s.screen.begin("moe", len(cells))
	defer done()
	var wrong int64
	for _, cell := range cells {
		n, err := s.exchangeCell(ctx, cell, cycle)
		if err != nil {
			return err
		}
		wrong += n
		s.screen.step()
	}
	verdict := "OK"
	if wrong > 0 {
		verdict, s.failed = "FAILED", true
	}
	fmt.Fprintf(s.screen, "# Out of bounds values : %d %s\n#\n# MoE test concluded\n\n", wrong, verdict)
	return nil
}

// exchangeCells lists the combinations of -d, --backend and --tokens. Of -d all, the types that tokens can have count.
func (s *session) exchangeCells() []exchange.Setup {
	var cells []exchange.Setup
	for _, t := range s.types {
		if s.DataType == "all" && t != dtype.F32 && t != dtype.BF16 && t != dtype.F16 {
			continue
		}
		for _, backend := range s.Backend {
			if kind, _ := weft.ExchangerStrategy(backend); s.LowLatency && kind == "agrs" {
				continue // it has no such mode
			}
			for _, tokens := range s.Tokens {
				cell := exchange.Setup{Backend: backend, Hidden: s.Hidden, Experts: s.Experts, TopK: s.TopK, Intermediate: s.Intermediate,
					Type: t, FP8: s.FP8, LowLatency: s.LowLatency, Skew: s.Skew, Zipf: s.Zipf, Seed: s.Seed}
				for r := range s.Ranks {
					if s.Zeros && r%2 == 1 {
						cell.Tokens = append(cell.Tokens, 0)
						continue
					}
					cell.Tokens = append(cell.Tokens, tokens)
				}
				cells = append(cells, cell)
			}
		}
	}
	return cells
}

// exchangeCell measures one cell's operations and returns how many elements were wrong.
func (s *session) exchangeCell(ctx context.Context, cell exchange.Setup, cycle int) (wrong int64, err error) {
	names := s.moe
	if i := slices.Index(names, "moe_layer"); i >= 0 && len(names) > 1 && s.world.Local()[0].Device().Kind != comm.CPU {
		names = slices.Delete(slices.Clone(names), i, i+1) // one of many that does not apply here
	}
	results, err := exchange.Measure(ctx, s.world, cell, names, s.timing(), s.Check)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		wrong += max(0, r.Wrong)
		s.exchangeRow(cell, r)
		if err := s.results.Write(s.exchangeRecord(cell, r, cycle)); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

func (s *session) exchangeRow(cell exchange.Setup, r exchange.Result) {
	wrong := "N/A"
	if r.Wrong >= 0 {
		wrong = fmt.Sprint(r.Wrong)
	}
	fmt.Fprintf(s.screen, "%11s  %10s  %8d  %8v  %8v  %9s  %9s  %8.3f  %8.3f  %7.2f  %8.2f  %6s\n", r.Op, r.Backend, cell.Tokens[0], cell.Type,
		cell.Wire(), micros(r.P50Us), micros(r.P99Us), r.LogicalGBs, r.WireGBs, r.CopiesPerToken, r.MaxOverMean, wrong)
}

// exchangeRecord turns a result into a line of the results file. Size is the tokens of one rank in bytes.
func (s *session) exchangeRecord(cell exchange.Setup, r exchange.Result, cycle int) record.Row {
	row := record.Row{Op: r.Op, Size: int64(cell.Tokens[0] * cell.Hidden * cell.Type.Size()), Count: cell.Tokens[0] * cell.Hidden,
		Type: cell.Type.String(), Driver: s.Driver, Ranks: s.Ranks, TimeUs: r.P50Us, AlgBW: r.LogicalGBs, BusBW: r.WireGBs, Iters: len(r.Iters),
		Cycle: cycle, Skew: cell.Skew, Zeros: s.Zeros, MoE: &record.MoE{Backend: cmp.Or(r.Backend, cell.Backend), Tokens: cell.Tokens[0],
			Hidden: cell.Hidden, Experts: cell.Experts, TopK: cell.TopK, Zipf: cell.Zipf, Wire: cell.Wire().String(), LowLatency: cell.LowLatency, P50Us: r.P50Us, P99Us: r.P99Us,
			LogicalGBs: r.LogicalGBs, WireGBs: r.WireGBs, CopiesPerToken: r.CopiesPerToken, MaxOverMean: r.MaxOverMean}}
	if r.Op == "moe_layer" {
		row.MoE.Intermediate = cell.Intermediate
	}
	if r.Op == "combine" {
		row.Redop = comm.Sum.String()
	}
	if r.Wrong >= 0 {
		row.Wrong = &r.Wrong
	}
	return row
}
