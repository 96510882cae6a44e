package weft

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
)

// Config says which world to open. The zero value is one rank on the CPU.
type Config struct {
	// Ranks is the number of ranks: goroutines of this process, 1 to 64 on the CPU. 0 means 1.
	Ranks int
	// Devices is where they run: "cpu", which "" means too. Ranks are not cores; eight ranks run on any machine.
	Devices string
	// Driver is the name of the driver: "local", which "" means too.
	Driver string
	// Timeout is the longest a rank waits for another before the world is declared dead. 0 means 60 s.
	Timeout time.Duration
}

// Open opens a world. Its caller runs ranks with World.Run and closes it. Errors are Invalid for numbers and names that make
// no sense and Unavailable for devices that this build has no driver for.
func Open(ctx context.Context, cfg Config) (*comm.World, error) {
	if err := ctx.Err(); err != nil {
		return nil, &comm.Error{Op: "open", Peer: comm.NoPeer, Code: comm.Aborted, Err: context.Cause(ctx)}
	}
	kind, _, _ := strings.Cut(cfg.Devices, ":")
	switch kind {
	case "", "cpu":
	case "cuda":
		return nil, comm.Errorf("open", 0, comm.Unavailable,
			`devices %q: this build has no GPU driver yet; it has driver "local" for devices "cpu" (%s/%s)`,
			cfg.Devices, runtime.GOOS, runtime.GOARCH)
	default:
		return nil, comm.Errorf("open", 0, comm.Invalid, `devices %q: use "cpu"`, cfg.Devices)
	}
	if cfg.Devices != "" && cfg.Devices != "cpu" {
		return nil, comm.Errorf("open", 0, comm.Invalid, `devices %q: the CPU is one device, "cpu"`, cfg.Devices)
	}
	switch cfg.Driver {
	case "", "local":
		return local.Open(local.Config{Ranks: cfg.Ranks, Timeout: cfg.Timeout})
	case "p2p", "nccl", "nvls", "nvshmem":
		return nil, comm.Errorf("open", 0, comm.Unavailable, `driver %q: this build has "local" only`, cfg.Driver)
	}
	return nil, comm.Errorf("open", 0, comm.Invalid, `driver %q: use "local"`, cfg.Driver)
}
