package lockstep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

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

// Agreement is what follows from everyone's records; it is the same on all ranks, Generation on all of one
// process.
type Agreement struct {
	Step         uint64 // number of this agreement, from 1
	Decision     Decision
	Tokens       []int  // [size] tokens per rank; valid until the next Agree
	MaxTokens    int    // the most of one rank
	SumTokens    int    // over the replicas: tokens of a replica's ranks count once
	PaddedTokens int    // as everyone said
	Mode         int    // as everyone said
	Balanced     bool   // all replicas have the same number of tokens
	Generation   uint64 // for Sleep: the least of the leaders of this process
}

// Config says how the ranks belong together. The zero value is one rank per replica.
type Config struct {
	// TP is the ranks of one replica; rank d*TP + t is number t of replica d, and t = 0 leads. 0 means 1. It must divide
	// the size of the Comm.
	TP int
	// Stream is where a GPU driver gathers; zero is the Comm's own.
	Stream comm.Stream
	// Processes is set when the ranks of several processes share steps and the Comm has only those of this one: rank i of
	// process p is number p * Size + i of all. Nil when the Comm has all of them.
	Processes Processes
	// Timeout is the longest that the ranks of one process wait for the other processes. 0 means 60 s.
	Timeout time.Duration
}

// Lockstep is one rank's side. The rank's goroutine uses it.
type Lockstep struct {
	c     *comm.Comm
	cfg   Config
	first int // number of this process's rank 0 among all
	rank  int // this rank's number among all, which errors name
	step  uint64
	sleep uint64 // sleeps of several processes so far
	dead  error  // after a disagreement: what every later call returns

	send, recv []int64 // host memory: [words], [all*words]
	host, dev  comm.Part
	onHost     bool // dev is host: the driver reads Go memory
	tokens     []int
	records    []row
}

// New makes one rank's side over the Comm of all ranks that share steps, or of those of this process. It is not collective and
// sends nothing. Close frees what it holds of a GPU.
func New(c *comm.Comm, cfg Config) (*Lockstep, error) {
	if cfg.TP == 0 {
		cfg.TP = 1
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Minute
	}
	l := &Lockstep{c: c, cfg: cfg, rank: c.WorldRank()}
	all := c.Size()
	if p := cfg.Processes; p != nil {
		all *= p.Size()
		l.first = p.Rank() * c.Size()
		l.rank = l.first + c.Rank()
	}
	if cfg.TP < 0 || all%cfg.TP != 0 {
		return nil, comm.Errorf("lockstep", l.rank, comm.Invalid, "%d ranks are not whole replicas of %d ranks", all, cfg.TP)
	}
	l.send, l.recv = make([]int64, words), make([]int64, all*words)
	l.tokens, l.records = make([]int, all), make([]row, all)
	l.host = comm.Part{Dst: comm.Of(l.recv, words), Src: comm.Of(l.send, words)}
	l.dev, l.onHost = l.host, c.Device().Kind == comm.CPU
	if l.onHost {
		return l, nil
	}
	var err error
	if l.dev.Src, err = comm.Alloc(c, dtype.I64, 1, words); err != nil {
		return nil, fmt.Errorf("lockstep: memory for a record: %w", err)
	}
	if l.dev.Dst, err = comm.Alloc(c, dtype.I64, all, words); err != nil {
		_ = comm.Free(c, l.dev.Src)
		return nil, fmt.Errorf("lockstep: memory for %d records: %w", all, err)
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
// nothing on a CPU driver of one process. Its wait is bounded by the world's timeout and ends when the world is aborted, as
// World.Run does when its ctx ends; ctx is looked at before, and while waiting for a GPU. After an error of code Invalid the
// ranks are out of step: every later call returns the same error. Where other processes cannot be agreed with, the world of
// this one ends.
func (l *Lockstep) Agree(ctx context.Context, r Record) (Agreement, error) {
	if l.dead != nil {
		return Agreement{}, l.dead
	}
	if err := ctx.Err(); err != nil {
		return Agreement{}, comm.Errorf("lockstep", l.rank, comm.Aborted, "before step %d: %w", l.step+1, context.Cause(ctx))
	}
	if r.Tokens < 0 || r.PaddedTokens < 0 || r.PaddedTokens > 0 && r.PaddedTokens < r.Tokens {
		return Agreement{}, comm.Errorf("lockstep", l.rank, comm.Invalid, "%d tokens padded to %d", r.Tokens, r.PaddedTokens)
	}
	l.step++
	own := row{step: l.step, rank: l.rank, Record: r}
	own.encode(l.send)
	if err := l.gather(ctx); err != nil {
		err = fmt.Errorf("lockstep: step %d: %w", l.step, err)
		if errors.Is(err, comm.Invalid) {
			l.dead = err
		}
		return Agreement{}, err
	}
	for i := range l.records {
		if !l.records[i].decode(l.recv[i*words:]) {
			l.dead = comm.Errorf("lockstep", l.rank, comm.Invalid, "step %d: rank %d is in another all_gather of this shape", l.step, i)
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
	if l.cfg.Processes != nil {
		return l.gatherAll(ctx)
	}
	return l.gatherLocal(ctx, l.host.Dst, l.dev.Dst)
}

// gatherLocal brings the records of this process into host [size, words], by way of dev.
func (l *Lockstep) gatherLocal(ctx context.Context, host, dev comm.Buffer) error {
	s := l.cfg.Stream
	if l.onHost {
		return l.c.AllGather(s, host, l.host.Src)
	}
	if err := comm.Copy(l.c, s, l.dev.Src, l.host.Src); err != nil {
		return err
	}
	if err := l.c.AllGather(s, dev, l.dev.Src); err != nil {
		return err
	}
	if err := comm.Copy(l.c, s, host, dev); err != nil {
		return err
	}
	return l.c.Wait(ctx, s)
}

// conclude draws the agreement from records that have been checked.
func (l *Lockstep) conclude() Agreement {
	first := &l.records[0]
	a := Agreement{Step: l.step, Tokens: l.tokens, PaddedTokens: first.PaddedTokens, Mode: first.Mode,
		Balanced: true, Generation: l.generation()}
	stop := false
	for i := range l.records {
		r := &l.records[i]
		l.tokens[i] = r.Tokens
		stop = stop || r.Stop
		a.MaxTokens = max(a.MaxTokens, r.Tokens)
		a.Balanced = a.Balanced && r.Tokens == first.Tokens
		if i%l.cfg.TP == 0 {
			a.SumTokens += r.Tokens
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

// generation is the least of the leaders of this process, whose Bell they share; of all its ranks if none leads.
func (l *Lockstep) generation() uint64 {
	least, led := uint64(math.MaxUint64), false
	for i := range l.c.Size() {
		leads := (l.first+i)%l.cfg.TP == 0
		if g := l.records[l.first+i].Generation; leads && !led {
			least, led = g, true
		} else if leads == led {
			least = min(least, g)
		}
	}
	return least
}
