package weft

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/p2p"
	"github.com/weftgo/weft/comm/staged"
	"github.com/weftgo/weft/nccl/ncclworld"
)

// Config says which world to open. The zero value is one rank on the CPU.
type Config struct {
	// Ranks is the number of ranks: goroutines of this process, 1 to 64 on the CPU. 0 means 1, or as many as Devices says.
	Ranks int
	// Devices is where they run: "cpu", which "" means too; ranks are not cores, eight run on any machine. Or GPUs, one for
	// each rank: "cuda:0-7", "cuda:0,2", or "cuda:0x8" for eight ranks that share GPU 0.
	Devices string
	// Driver is the name of the driver: "local" on the CPU, "p2p" on GPUs, which "" means too, or "nccl" on as many GPUs as
	// ranks; NCCL rounds sums at every hop, so its bits differ. "staged" (or "staged:p2p") is
	// for programs that compute on the host: ranks have Go memory, and only their collectives run on the GPUs that Devices
	// names; see package comm/staged.
	Driver string
	// Timeout is the longest a rank waits for another before the world is declared dead. 0 means 60 s.
	Timeout time.Duration
}

// Open opens a world. Its caller runs ranks with World.Run and closes it. Errors are Invalid for numbers and names that make
// no sense, alone or together, and Unavailable where this machine or build lacks what the devices need.
func Open(ctx context.Context, cfg Config) (*comm.World, error) {
	if err := ctx.Err(); err != nil {
		return nil, &comm.Error{Op: "open", Peer: comm.NoPeer, Code: comm.Aborted, Err: context.Cause(ctx)}
	}
	kind, list, _ := strings.Cut(cfg.Devices, ":")
	switch kind {
	case "", "cpu":
		return openCPU(cfg)
	case "cuda":
		return openGPU(ctx, cfg, list)
	}
	return nil, comm.Errorf("open", 0, comm.Invalid, `devices %q: use "cpu", or GPUs such as "cuda:0-7" and "cuda:0x8"`, cfg.Devices)
}

func openCPU(cfg Config) (*comm.World, error) {
	if cfg.Devices != "" && cfg.Devices != "cpu" {
		return nil, comm.Errorf("open", 0, comm.Invalid, `devices %q: the CPU is one device, "cpu"`, cfg.Devices)
	}
	if cfg.Driver == "" || cfg.Driver == "local" {
		return local.Open(local.Config{Ranks: cfg.Ranks, Timeout: cfg.Timeout})
	}
	return nil, noDriver(cfg)
}

func openGPU(ctx context.Context, cfg Config, list string) (*comm.World, error) {
	devices, err := gpus(list)
	if err == nil && cfg.Ranks != 0 && cfg.Ranks != len(devices) {
		err = fmt.Errorf("they are for %d ranks, not %d", len(devices), cfg.Ranks)
		if gpu := devices[0].Index; cfg.Ranks > 0 {
			err = fmt.Errorf("%w; %d ranks on GPU %d are cuda:%dx%d", err, cfg.Ranks, gpu, gpu, cfg.Ranks)
		}
	}
	if err != nil {
		return nil, comm.Errorf("open", 0, comm.Invalid, "devices %q: %w", cfg.Devices, err)
	}
	var world *comm.World
	name, isStaged := strings.CutPrefix(cfg.Driver+":", "staged:") // "staged", "staged:p2p", or a driver alone
	switch strings.TrimSuffix(name, ":") {
	case "", "p2p":
		world, err = p2p.Open(ctx, p2p.Config{Devices: devices, Timeout: cfg.Timeout})
	case "nccl":
		world, err = ncclworld.Open(ctx, ncclworld.Config{Devices: devices, Timeout: cfg.Timeout})
	default:
		return nil, noDriver(cfg)
	}
	if err != nil || !isStaged {
		return world, err
	}
	return stage(ctx, world)
}

// stage keeps the ranks of a GPU world on the host.
func stage(ctx context.Context, world *comm.World) (*comm.World, error) {
	host, err := staged.Open(world, staged.Config{})
	if err != nil {
		return nil, errors.Join(err, world.Close(ctx))
	}
	return host, nil
}

// noDriver says why the driver of that name does not run there.
func noDriver(cfg Config) error {
	switch cfg.Driver {
	case "local":
		return comm.Errorf("open", 0, comm.Invalid, `driver "local" runs on the CPU, not on devices %q: use "p2p" or "nccl", or devices "cpu"`, cfg.Devices)
	case "p2p", "nccl", "staged", "staged:p2p", "staged:nccl":
		return comm.Errorf("open", 0, comm.Invalid, `driver %q runs on GPUs: name them in devices, such as "cuda:0-7"`, cfg.Driver)
	}
	return comm.Errorf("open", 0, comm.Invalid, `driver %q: use "local" on the CPU; "p2p", "nccl", "staged" (or "staged:nccl") on GPUs`, cfg.Driver)
}

// gpus reads a list of GPUs, one for each rank: "0-7", "0,2,5", "0x8" (eight ranks on GPU 0), and lists of these.
func gpus(list string) ([]comm.Device, error) {
	var devices []comm.Device
	for item := range strings.SplitSeq(list, ",") {
		first, times, repeated := strings.Cut(item, "x")
		first, last, ranged := strings.Cut(first, "-")
		if !ranged {
			last = first
		}
		lo, err := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		n := 1
		var err3 error
		if repeated {
			n, err3 = strconv.Atoi(times)
		}
		if errors.Join(err, err2, err3) != nil || lo < 0 || hi < lo || n < 1 || (hi-lo+1)*n > p2p.MaxRanks {
			return nil, fmt.Errorf(`%q is no GPU; use "cuda:0", "cuda:0-7", "cuda:0,2" or "cuda:0x8" (eight ranks on GPU 0), up to %d ranks`, item, p2p.MaxRanks)
		}
		for i := lo; i <= hi; i++ {
			for range n {
				devices = append(devices, comm.Device{Kind: comm.CUDA, Index: i})
			}
		}
	}
	return devices, nil
}
