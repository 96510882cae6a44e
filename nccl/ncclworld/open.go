package ncclworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/gpurank"
	"github.com/weftgo/weft/nccl"
	"github.com/weftgo/weft/nccl/internal/recipe"
)

// Ragged says how the V forms whose counts differ are made of what NCCL has. Equal counts take one call in each.
type Ragged = recipe.Ragged

// The ways.
const (
	Grouped  = recipe.Grouped  // one group of broadcasts or reduces, one for each rank that has rows
	Padded   = recipe.Padded   // one all_gather or reduce_scatter of the largest count, through the workspace
	Messages = recipe.Messages // all_gatherv as one group of sends and receives; reduce_scatterv is Grouped
)

// Config says what to open.
type Config struct {
	// Devices are the GPUs of this process's ranks, each named once: NCCL refuses two ranks of a process on one GPU.
	Devices []comm.Device
	// First is the rank of the world that Devices[0] has; the others follow. Size is the number of ranks of the world; 0
	// means that this process has all of them.
	First, Size int
	// Store is how the processes share NCCL's unique id, and learn of each other's failures. It may be nil when this process
	// has all ranks. It stays the caller's and must outlive the world.
	Store rendezvous.Store
	// Name separates worlds that share a Store; "" means "nccl". The processes of a world give the same name and open
	// worlds of one name in the same order; after an Open that failed they go on with another name.
	Name string
	// Timeout is the longest that a Wait or an enqueue waits for other ranks. 0 means 60 s. A Wait also waits for the
	// caller's own work on the stream.
	Timeout time.Duration
	// OpenTimeout is the longest that Open waits for all ranks to come. 0 means Timeout, but at least a minute.
	OpenTimeout time.Duration
	// Ragged says how counts that differ are handled.
	Ragged Ragged
	// Options are NCCL's. With Blocking an enqueue costs a sixth, but Open cannot be ended while it waits inside the library,
	// and an enqueue that does is ended by the end of the world only, within a second.
	Options nccl.Options
}

func (cfg *Config) complete() error {
	n := len(cfg.Devices)
	if cfg.Size == 0 {
		cfg.Size = n
	}
	if n == 0 {
		return errors.New("no Devices: name one GPU for each rank of this process")
	}
	if cfg.First < 0 || cfg.First+n > cfg.Size {
		return fmt.Errorf("ranks %d to %d of a world of %d", cfg.First, cfg.First+n-1, cfg.Size)
	}
	for i, d := range cfg.Devices {
		if d.Kind != comm.CUDA || d.Index < 0 {
			return fmt.Errorf("rank %d: %v is no GPU", cfg.First+i, d)
		}
		if slices.Contains(cfg.Devices[:i], d) {
			return fmt.Errorf("rank %d: %v has a rank already; NCCL takes one rank of a process on a GPU, driver p2p several", cfg.First+i, d)
		}
	}
	if cfg.Store == nil && cfg.Size != n {
		return fmt.Errorf("%d of %d ranks are in other processes; a Store must bring them together", cfg.Size-n, cfg.Size)
	}
	if cfg.Timeout < 0 || cfg.OpenTimeout < 0 || cfg.Ragged < Grouped || cfg.Ragged > Messages {
		return fmt.Errorf("timeout %v, open timeout %v, ragged %d", cfg.Timeout, cfg.OpenTimeout, cfg.Ragged)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	if cfg.OpenTimeout == 0 {
		cfg.OpenTimeout = max(cfg.Timeout, time.Minute)
	}
	if cfg.Name == "" {
		cfg.Name = "nccl"
	}
	return nil
}

// Open makes this process's part of a world. It returns when all ranks have come. Errors are Unavailable without a driver,
// a GPU or the library (or one too old), Invalid for a Config that makes no sense, Timeout when not all came.
func Open(ctx context.Context, cfg Config) (*comm.World, error) {
	if err := cfg.complete(); err != nil {
		return nil, openError(cfg, comm.Invalid, err)
	}
	if err := nccl.Init(); err != nil {
		return nil, openError(cfg, comm.Unavailable, err)
	}
	w := &world{cfg: cfg, groups: map[groupKey]*group{}}
	w.life, w.end = context.WithCancelCause(context.Background())
	limited, cancel := context.WithTimeout(ctx, cfg.OpenTimeout)
	defer cancel()
	if err := w.open(limited); err != nil {
		return nil, openError(cfg, gpurank.CodeOf(err), errors.Join(err, w.free()))
	}
	comms := make([]*comm.Comm, len(w.ranks))
	for i, r := range w.ranks {
		comms[i] = comm.New(r.main, r.index, cfg.Size)
	}
	w.comm = comm.NewWorld(comms)
	w.watch()
	return w.comm, nil
}

func openError(cfg Config, code comm.Code, err error) error {
	if e := (*comm.Error)(nil); errors.As(err, &e) {
		return err
	}
	return &comm.Error{Op: "open nccl", Rank: cfg.First, Peer: comm.NoPeer, Code: code, Err: err}
}

// open takes devices, streams and memory, and makes the communicators.
func (w *world) open(ctx context.Context) error {
	devices, numbers := make([]*cuda.Device, len(w.cfg.Devices)), make([]int, len(w.cfg.Devices))
	for i, d := range w.cfg.Devices {
		dev, err := cuda.Open(d.Index)
		if err != nil {
			return err
		}
		r := &rank{w: w, index: w.cfg.First + i, dev: dev}
		if w.cfg.Size > 1 {
			r.release = dev.Hold()
		}
		w.ranks = append(w.ranks, r)
		if err := r.open(); err != nil {
			return fmt.Errorf("rank %d on %v: %w", r.index, d, err)
		}
		devices[i], numbers[i] = dev, r.index
	}
	id, err := w.share(ctx)
	if err != nil {
		return err
	}
	raws, err := nccl.NewGroup(ctx, devices, w.cfg.Size, numbers, id, w.cfg.Options)
	if err != nil {
		return w.unfinished(ctx, err)
	}
	members := make([]int, w.cfg.Size)
	for i := range members {
		members[i] = i
	}
	g := newGroup(w, members)
	for i, r := range w.ranks {
		r.main = g.join(r, r.index, raws[i])
	}
	w.numOpen.Store(int32(len(w.ranks)))
	return nil
}

// unfinished is the error of communicators that did not come about.
func (w *world) unfinished(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("not all of the %d ranks came within %v: %w", w.cfg.Size, w.cfg.OpenTimeout, err)
}
