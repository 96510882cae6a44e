package par

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Who computes: callers inside a chunked loop, helpers, and goroutines that said so by Enter. Callers are among the latter
// where ranks use Enter, so the larger of the two counts.
var callers, helpers, entered atomic.Int32

func active() int32 { return helpers.Load() + max(callers.Load(), entered.Load()) }

// Enter says that the calling goroutine computes from now on, also outside of [For], until it calls [Leave]. It is optional, and
// worth calling where many ranks share the cores: a rank leaves while it waits for its peers and enters when it goes on,
// so that those still at work get helpers just then, and none while every core has a rank to run.
func Enter() { entered.Add(1) }

// Leave ends what [Enter] began. The calls must be paired, and may come from different goroutines.
func Leave() { entered.Add(-1) }

// A Panic is what [For] panics with on the caller when fn panicked on a helper.
type Panic struct {
	Value any    // what fn panicked with
	Stack []byte // the helper's stack at that moment
}

// Error returns the value and the stack of the goroutine that panicked.
func (p *Panic) Error() string {
	return fmt.Sprintf("par: fn panicked on a helper goroutine: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the panic value if it is an error, else nil.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// loop is the shared state of one call of For. It goes back to the pool when the caller and every helper, also one that
// was scheduled too late to find work, have let go of it; a late helper touches nothing but this struct.
type loop struct {
	fn        func(lo, hi int)
	n, grain  int
	numChunks int32
	next      atomic.Int32  // first unclaimed chunk
	remaining atomic.Int32  // chunks not yet finished
	refs      atomic.Int32  // caller + helpers
	failed    atomic.Bool   // skip the chunks that are left
	done      chan struct{} // capacity 1: a helper finished the last chunk
	help      func()        // bound once, so that `go` allocates nothing

	mu     sync.Mutex
	panic  *Panic
	goexit bool
}

var loops sync.Pool

func newLoop() *loop {
	if l, ok := loops.Get().(*loop); ok {
		return l
	}
	l := &loop{done: make(chan struct{}, 1)}
	l.help = l.helper
	return l
}

// For calls fn for subranges [lo, hi) that together cover [0, n) once, each of grain elements but the last, on the calling
// goroutine and on as many helper goroutines as there are idle cores. It returns when all calls have returned. A loop of
// one chunk runs inline. Chunks run in no particular order, so fn must write only what its range owns.
//
// A panic of fn on the caller's goroutine passes through once the helpers have stopped; a panic on a helper is raised on
// the caller as a [*Panic]. In both cases some of the range may not have been visited. For may be called from many
// goroutines, and from within fn.
func For(n, grain int, fn func(lo, hi int)) {
	if n <= 0 {
		return
	}
	grain = max(grain, 1, (n+maxChunks-1)/maxChunks)
	if n <= grain {
		fn(0, n)
		return
	}
	procs := int32(runtime.GOMAXPROCS(0))
	if procs == 1 {
		fn(0, n)
		return
	}
	l := newLoop()
	l.fn, l.n, l.grain = fn, n, grain
	l.numChunks = int32((n + grain - 1) / grain)
	l.next.Store(0)
	l.remaining.Store(l.numChunks)
	l.refs.Store(1)
	callers.Add(1)
	l.call(procs)
}

// maxChunks bounds the number of chunks so that claims fit an int32 with room for one overshoot per helper.
const maxChunks = 1 << 20

// call is the caller's share of the loop. finish is deferred because it must also run when fn panics: helpers write
// memory that belongs to the caller's frame.
func (l *loop) call(procs int32) {
	returned := false
	defer func() { l.finish(returned) }()
	for {
		if active() < procs && l.next.Load() < l.numChunks-1 {
			l.recruit()
		}
		c := l.next.Add(1) - 1
		if c >= l.numChunks {
			break
		}
		l.chunk(c)
	}
	returned = true
}

// finish waits for the chunks that helpers hold and raises what went wrong on one of them. returned is false while the
// caller itself is panicking or exiting; that takes precedence.
func (l *loop) finish(returned bool) {
	for !returned { // nobody needs the unclaimed chunks any more
		c := l.next.Add(1) - 1
		if c >= l.numChunks {
			break
		}
		l.chunk(c)
	}
	callers.Add(-1)
	<-l.done
	l.mu.Lock()
	p, goexit := l.panic, l.goexit
	l.mu.Unlock()
	l.release()
	switch {
	case !returned:
	case p != nil:
		panic(p)
	case goexit:
		runtime.Goexit()
	}
}

// recruit starts one helper. The count may overshoot GOMAXPROCS by a few when several callers look at once; that costs
// a goroutine start, nothing else.
func (l *loop) recruit() {
	helpers.Add(1)
	l.refs.Add(1)
	go l.help()
}

// chunk runs fn on chunk c, or skips it after a failure, and counts it as finished even when fn panics. Whoever
// finishes the last chunk wakes the caller; the atomic counter orders the chunks' writes before that.
func (l *loop) chunk(c int32) {
	completed := false
	defer func() {
		if !completed {
			l.failed.Store(true)
		}
		if l.remaining.Add(-1) == 0 {
			l.done <- struct{}{}
		}
	}()
	if !l.failed.Load() {
		lo := int(c) * l.grain
		l.fn(lo, min(lo+l.grain, l.n))
	}
	completed = true
}

// helper claims chunks until none is left.
func (l *loop) helper() {
	defer func() {
		helpers.Add(-1)
		l.release()
	}()
	for {
		c := l.next.Add(1) - 1
		if c >= l.numChunks {
			return
		}
		l.helpChunk(c)
	}
}

// helpChunk is chunk for a helper: the first panic or Goexit is kept for the caller, before the count that wakes it.
func (l *loop) helpChunk(c int32) {
	defer func() {
		if l.remaining.Add(-1) == 0 {
			l.done <- struct{}{}
		}
	}()
	if l.failed.Load() {
		return
	}
	completed := false
	defer func() {
		if completed {
			return
		}
		l.failed.Store(true)
		v := recover()
		l.mu.Lock()
		defer l.mu.Unlock()
		if v == nil {
			l.goexit = true
		} else if l.panic == nil {
			l.panic = &Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	lo := int(c) * l.grain
	l.fn(lo, min(lo+l.grain, l.n))
	completed = true
}

// release drops one reference; the last one clears the loop and hands it back.
func (l *loop) release() {
	if l.refs.Add(-1) > 0 {
		return
	}
	l.fn, l.panic, l.goexit = nil, nil, false
	l.failed.Store(false)
	loops.Put(l)
}
