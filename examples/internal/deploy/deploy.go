package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftgo/weft"
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/examples/internal/checkpoint"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/layout"
	"github.com/weftgo/weft/examples/internal/model"
	"github.com/weftgo/weft/trace"
)

// Config says how to serve. Zero fields have defaults.
type Config struct {
	Layout           layout.Layout
	MaxBatchedTokens int // tokens of one step of the whole world, shared by the replicas; 0 means 4096
	MaxSeqs          int // requests that run at once on one replica; 0 means 64
	MaxModelLen      int // tokens of one request; 0 means what the model allows
	CacheTokens      int // positions of keys and values of one replica; 0 means MaxModelLen and MaxBatchedTokens x 4, the larger
	BlockSize        int // 0 means 64
	RankInvariant    bool
	PrefixCaching    bool            // requests share the keys and values of equal beginnings; see engine.Config
	WaitForPrefix    bool            // and do not compute a beginning that another is computing; see engine.Config
	Policy           engine.Policy   // which replica gets a request; nil means in turn
	Timeout          time.Duration   // the longest wait for another rank in a collective; 0 means 60 s
	StepTimeout      time.Duration   // the longest step of a rank, whether others wait or not; 0 means 5 minutes
	Devices          string          // "": all on the CPU. GPUs such as "cuda:0x8", one for each rank: only the collectives run there
	Recorder         *trace.Recorder // of as many ranks as the layout has; nil records nothing
}

// maxTokens bounds what a step or a cache may hold, so that sizes in bytes stay far from overflow.
const maxTokens = 1 << 30

func (c Config) check() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"max batched tokens", c.MaxBatchedTokens}, {"max seqs", c.MaxSeqs}, {"max model len", c.MaxModelLen},
		{"cache tokens", c.CacheTokens}, {"block size", c.BlockSize},
	} {
		if f.value < 0 || f.value > maxTokens {
			return fmt.Errorf("deploy: %s %d is not in [0, %d]; 0 means the default", f.name, f.value, maxTokens)
		}
	}
	return nil
}

func (c Config) withDefaults(m *checkpoint.Config) Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.MaxBatchedTokens, 4096)
	set(&c.MaxSeqs, 64)
	set(&c.MaxModelLen, m.MaxPositionEmbeddings)
	set(&c.BlockSize, model.DefaultBlockSize)
	set(&c.CacheTokens, max(c.MaxModelLen, 4*c.MaxBatchedTokens))
	return c
}

// PrefixAware returns the front door for replicas with prefix caches: a request goes where its beginning should be cached, unless
// that replica has four steps more to do than the least loaded. (With two steps a burst of postings spilled over: sharing
// gave 1.4 to 1.6 times the requests a second on dp8 where four and sixteen steps gave 1.9; see docs/performance.md.)
func PrefixAware(l layout.Layout, maxBatchedTokens int) engine.Policy {
	return engine.PrefixAware(4 * max(1, maxBatchedTokens/l.DP))
}

// Deployment is a model in service.
type Deployment struct {
	Config Config
	World  *comm.World
	Models []*model.Model // by rank
	Engine *engine.Engine

	folder *checkpoint.Folder
	meters []*meter
}

// openWorld opens the ranks of the layout, with their collectives where Devices says.
func openWorld(ctx context.Context, cfg Config) (*comm.World, error) {
	where := weft.Config{Ranks: cfg.Layout.Size(), Timeout: cfg.Timeout, Devices: cfg.Devices}
	if cfg.Devices != "" && cfg.Devices != "cpu" {
		where.Driver = "staged" // the model computes on the host
	}
	return weft.Open(ctx, where)
}

// TryDevices says whether the ranks of the layout can have Devices: it opens them, and closes them again.
func TryDevices(ctx context.Context, cfg Config) error {
	world, err := openWorld(ctx, cfg)
	if err != nil {
		return err
	}
	return world.Close(ctx)
}

// Open checks that the layout can hold the model, opens a world, loads every rank's part and starts the engine. The folder
// must stay open until Close. Weights that are missing, cut off or not those that config.json tells are Invalid.
func Open(ctx context.Context, folder *checkpoint.Folder, cfg Config) (*Deployment, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(folder.Config)
	l := cfg.Layout
	perReplica := max(1, cfg.MaxBatchedTokens/l.DP)
	parts := model.Config{
		Parallel: l.Parallel, Backend: l.Backend, BlockSize: cfg.BlockSize, RankInvariant: cfg.RankInvariant,
		NumBlocks: (cfg.CacheTokens + cfg.BlockSize - 1) / cfg.BlockSize, MaxBatchedTokens: perReplica,
	}
	if err := parts.Check(folder.Config, l.Size()); err != nil {
		return nil, fmt.Errorf("%s in layout %v: %w", folder.Name(), l, err)
	}
	if err := folder.Validate(); err != nil { // or a rank meets it, as an error of its own making
		return nil, comm.Errorf("load", 0, comm.Invalid, "%w", err)
	}
	world, err := openWorld(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d := &Deployment{Config: cfg, World: world, Models: make([]*model.Model, l.Size()), folder: folder,
		meters: make([]*meter, l.Size())}
	if err := d.load(ctx, parts); err != nil {
		return nil, errors.Join(err, world.Close(ctx))
	}
	models := make([]engine.Model, l.Size())
	for r := range models {
		models[r] = d.meters[r]
	}
	d.Engine, err = engine.New(world, models, engine.Config{
		Layout: l.Parallel, VocabSize: folder.Config.VocabSize, EOS: folder.EOS(),
		MaxBatchedTokens: perReplica, MaxSeqs: cfg.MaxSeqs, MaxModelLen: cfg.MaxModelLen,
		BlockSize: cfg.BlockSize, NumBlocks: parts.NumBlocks, Tracer: cfg.Recorder,
		PrefixCaching: cfg.PrefixCaching, WaitForPrefix: cfg.WaitForPrefix, Policy: cfg.Policy,
		StepTimeout: cfg.StepTimeout,
	})
	if err != nil {
		return nil, errors.Join(err, world.Close(ctx))
	}
	return d, nil
}

// load makes every rank's model. It has a Comm of its own, so that its counters are the model's alone and the
// engine's agreements are not among them.
func (d *Deployment) load(ctx context.Context, parts model.Config) error {
	return d.World.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
		r := c.Rank()
		own, err := c.Split(ctx, 0, r)
		if err != nil {
			return err
		}
		parts := parts
		mark := &marker{}
		if lane := d.Config.Recorder.Rank(r); lane != nil {
			parts.Lane = lane
			mark.next = lane.Tracer()
		}
		own.SetTracer(mark)
		if d.Models[r], err = model.New(ctx, own, d.folder, parts); err != nil {
			return err
		}
		d.meters[r] = newMeter(d.Models[r], mark, r, d.folder.Config)
		return nil
	})
}

// Stop drains or aborts the engine as ctx allows. When it returns no rank is in a step any more, so what was counted is
// complete.
func (d *Deployment) Stop(ctx context.Context) error { return d.Engine.Close(ctx) }

// Close stops the engine, if Stop has not, and frees the ranks' parts.
func (d *Deployment) Close(ctx context.Context) error {
	err := d.Stop(ctx)
	if d.World.Err() == nil {
		err = errors.Join(err, d.World.Run(ctx, func(ctx context.Context, c *comm.Comm) error {
			return d.Models[c.Rank()].Close(ctx)
		}))
	}
	return errors.Join(err, d.World.Close(ctx))
}
