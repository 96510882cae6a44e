package lockstep

import (
	"context"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// Record is what one rank is about to do.
type Record struct {
	// Tokens is the rows of this rank's replica in the step; 0 joins without work. Ranks of one replica say the same.
	Tokens int
	// PaddedTokens is the rows that every rank pads its batch to, such as the size of a captured graph: the same on all
	// ranks, at least Tokens; 0 means that nobody pads. A size that depends on the load must not be chosen from Tokens of
	// one rank: leave it 0 and choose from Agreement.MaxTokens.
	PaddedTokens int
	// Mode is how the step is run, in the caller's own numbers (eager or graph, micro-batches, ...): the same on all ranks.
	Mode int
	// Hash is of the batch that the rank is about to run: the same on the ranks of one replica.
	Hash uint64
	// Generation is the Bell's, read before the leader looked for work. Only leaders' count.
	Generation uint64
	// Stop says that this rank has been told to stop. All stop at the first step where one says so and none has tokens.
	Stop bool
}

// Decision is what all ranks do next.
type Decision uint8

// The decisions.
const (
	Sleep Decision = iota // nobody has tokens: wait until the Bell's generation exceeds Agreement.Generation
	Run                   // some replica has tokens: every rank runs the step, those without tokens an empty one
	Stop                  // nobody has tokens and a rank said Stop: every rank leaves its loop
)

// String returns "sleep", "run" or "stop".
func (d Decision) String() string {
	if d > Stop {
		return fmt.Sprintf("decision(%d)", uint8(d))
	}
	return [...]string{"sleep", "run", "stop"}[d]
}

// Agreement is what follows from everyone's records; it is the same on all ranks.
type Agreement struct {
	Step         uint64 // number of this agreement, from 1
	Decision     Decision
	Tokens       []int // [size] tokens per rank; valid until the next Agree
	MaxTokens    int   // the most of one rank
	SumTokens    int   // over the replicas: tokens of a replica's ranks count once
	PaddedTokens int   // as everyone said
	Mode         int   // as everyone said
	Balanced     bool  // all replicas have the same number of tokens
	Generation   uint64
}

// Config says how the ranks belong together. The zero value is one rank per replica.
type Config struct {
	// TP is the ranks of one replica; rank d*TP + t is number t of replica d, and t = 0 leads. 0 means 1. It must divide
	// the size of the Comm.
	TP int
	// Stream is where a GPU driver gathers; zero is the Comm's own.
	Stream comm.Stream
}

// Lockstep is one rank's side. The rank's goroutine uses it.
type Lockstep struct {
	c    *comm.Comm
	cfg  Config
	step uint64
	dead error // after a disagreement: what every later call returns

	send, recv []int64 // host memory: [words], [size*words]
	host, dev  comm.Part
	onHost     bool // dev is host: the driver reads Go memory
	tokens     []int
	records    []row
}

// New makes one rank's side over the Comm of all ranks that share steps. It is not collective and sends nothing. Close
// frees what it holds of a GPU.
func New(c *comm.Comm, cfg Config) (*Lockstep, error) {
	if cfg.TP == 0 {
		cfg.TP = 1
	}
	if cfg.TP < 0 || c.Size()%cfg.TP != 0 {
		return nil, comm.Errorf("lockstep", c.WorldRank(), comm.Invalid, "%d ranks are not whole replicas of %d ranks", c.Size(), cfg.TP)
	}
	l := &Lockstep{c: c, cfg: cfg,
		send: make([]int64, words), recv: make([]int64, c.Size()*words),
		tokens: make([]int, c.Size()), records: make([]row, c.Size()),
	}
	l.host = comm.Part{Dst: comm.Of(l.recv, words), Src: comm.Of(l.send, words)}
	l.dev, l.onHost = l.host, c.Device().Kind == comm.CPU
	if l.onHost {
		return l, nil
	}
	var err error
	if l.dev.Src, err = comm.Alloc(c, dtype.I64, 1, words); err != nil {
		return nil, fmt.Errorf("lockstep: memory for a record: %w", err)
	}
	if l.dev.Dst, err = comm.Alloc(c, dtype.I64, c.Size(), words); err != nil {
		_ = comm.Free(c, l.dev.Src)
		return nil, fmt.Errorf("lockstep: memory for %d records: %w", c.Size(), err)
	}
	return l, nil
}

// Close frees device memory, of which a CPU driver has none.
func (l *Lockstep) Close() error {
	if l.onHost {
		return nil
	}
	l.onHost = true
	if err := comm.Free(l.c, l.dev.Src); err != nil {
		return err
	}
	return comm.Free(l.c, l.dev.Dst)
}

// Agree tells all ranks what this one is about to run and returns what all of them do. It is collective, and allocates
// nothing on a CPU driver. Its wait is bounded by the world's timeout and ends when the world is aborted, as World.Run does when
// its ctx ends; ctx is looked at before, and while waiting for a GPU. After an error of code Invalid the ranks are out of
// step: every later call returns the same error.
func (l *Lockstep) Agree(ctx context.Context, r Record) (Agreement, error) {
	if l.dead != nil {
		return Agreement{}, l.dead
	}
	if err := ctx.Err(); err != nil {
		return Agreement{}, comm.Errorf("lockstep", l.c.WorldRank(), comm.Aborted, "before step %d: %w", l.step+1, context.Cause(ctx))
	}
	if r.Tokens < 0 || r.PaddedTokens < 0 || r.PaddedTokens > 0 && r.PaddedTokens < r.Tokens {
		return Agreement{}, comm.Errorf("lockstep", l.c.WorldRank(), comm.Invalid, "%d tokens padded to %d", r.Tokens, r.PaddedTokens)
	}
	l.step++
	own := row{step: l.step, rank: l.c.WorldRank(), Record: r}
	own.encode(l.send)
	if err := l.gather(ctx); err != nil {
		return Agreement{}, fmt.Errorf("lockstep: step %d: %w", l.step, err)
	}
	for i := range l.records {
		if !l.records[i].decode(l.recv[i*words:]) {
			l.dead = comm.Errorf("lockstep", l.c.WorldRank(), comm.Invalid, "step %d: rank %d is in another all_gather of this shape", l.step, i)
			return Agreement{}, l.dead
		}
	}
	if err := l.check(); err != nil {
		l.dead = err
		return Agreement{}, err
	}
	return l.conclude(), nil
}

// gather brings everyone's record into l.recv.
func (l *Lockstep) gather(ctx context.Context) error {
	s := l.cfg.Stream
	if l.onHost {
		return l.c.AllGather(s, l.dev.Dst, l.dev.Src)
	}
	if err := comm.Copy(l.c, s, l.dev.Src, l.host.Src); err != nil {
		return err
	}
	if err := l.c.AllGather(s, l.dev.Dst, l.dev.Src); err != nil {
		return err
	}
	if err := comm.Copy(l.c, s, l.host.Dst, l.dev.Dst); err != nil {
		return err
	}
	return l.c.Wait(ctx, s)
}

// conclude draws the agreement from records that have been checked.
func (l *Lockstep) conclude() Agreement {
	first := &l.records[0]
	a := Agreement{Step: l.step, Tokens: l.tokens, PaddedTokens: first.PaddedTokens, Mode: first.Mode,
		Balanced: true, Generation: first.Generation}
	stop := false
	for i := range l.records {
		r := &l.records[i]
		l.tokens[i] = r.Tokens
		stop = stop || r.Stop
		a.MaxTokens = max(a.MaxTokens, r.Tokens)
		a.Balanced = a.Balanced && r.Tokens == first.Tokens
		if i%l.cfg.TP == 0 {
			a.SumTokens += r.Tokens
			a.Generation = min(a.Generation, r.Generation)
		}
	}
	switch {
	case a.SumTokens > 0:
		a.Decision = Run
	case stop:
		a.Decision = Stop
	}
	return a
}
