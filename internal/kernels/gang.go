package kernels

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
	"unsafe"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/envknob"
)

// gangs makes one launch of the kernels that wait for each other. Tools such as compute-sanitizer run one kernel at a time:
// without this a rank's kernel would wait for one that the tool does not start. It is slow, takes no graphs, and leaves
// messages (Send, Recv) as they are.
var gangs = envknob.Register("WEFT_KERNEL_GANG", "1: ranks on one GPU launch kernels that wait for each other as one kernel, for tools that run one at a time", "0", "1")

func ganged() bool {
	v, _ := gangs.Get()
	return v == "1"
}

// parameter is a kernel's one parameter, in its first line.
var parameter = regexp.MustCompile(`(?m)^(extern "C" __global__ .*)\(const __grid_constant__ (\w+) (\w+)\) \{`)

// gangSource makes every kernel take a list of parameters, of which blocks with y = i take entry i.
func gangSource(source string) string {
	return parameter.ReplaceAllString(source, `$1(const $2 *gang) { const $2 &$3 = gang[blockIdx.y];`)
}

// gangBytes is the pinned memory for lists of parameters. It is used in turn; no more than a few launches are under way.
const gangBytes = 8 << 20

// gangWait is how long a launch waits for the other ranks'.
const gangWait = time.Minute

// gang collects launches until all ranks of a group have come with theirs. A nil gang launches at once.
type gang struct {
	dev   *cuda.Device
	lists *cuda.Pinned
	grown *cuda.Function // takes more shared memory than it needs as if it had what it needs
	mu    sync.Mutex
	at    int                     // in lists
	sizes map[uint64]int          // ranks of the group, by the Ctl of each
	short map[*cuda.Function]bool // kernels whose peers may run the general one
	calls map[uint64]*gangCall    // by signature
}

type gangCall struct {
	fn      *cuda.Function
	shape   cuda.Launch
	streams []*cuda.Stream
	params  []byte
	done    chan struct{}
	err     error
}

// add takes one more rank's launch. Ranks may choose different kernels and shapes for a call: all get the general kernel, the
// most blocks, and bulk copies only if all would have them.
func (c *gangCall) add(g *gang, st *cuda.Stream, fn *cuda.Function, l *cuda.Launch, params []byte) {
	blocks := max(l.Grid[0], c.shape.Grid[0])
	switch {
	case c.fn == nil, fn != c.fn && g.short[c.fn], fn == c.fn && l.Shared != c.shape.Shared && (l.Shared > c.shape.Shared) == (fn == g.grown):
		c.fn, c.shape = fn, *l
	}
	c.shape.Grid[0] = blocks
	c.streams, c.params = append(c.streams, st), append(c.params, params...)
}

func newGang(dev *cuda.Device) (*gang, error) {
	if !ganged() {
		return nil, nil
	}
	lists, err := dev.AllocHost(gangBytes)
	if err != nil {
		return nil, err
	}
	return &gang{dev: dev, lists: lists, sizes: map[uint64]int{}, short: map[*cuda.Function]bool{}, calls: map[uint64]*gangCall{}}, nil
}

func (g *gang) close() error {
	if g == nil {
		return nil
	}
	return g.lists.Close()
}

// group notes the size of a Ctl's group.
func (g *gang) group(ctl uint64, size int) {
	if g != nil {
		g.mu.Lock()
		g.sizes[ctl] = size
		g.mu.Unlock()
	}
}

// enqueue launches a kernel; meet is what it meets its peers with, nil if it waits for nobody.
func enqueue[P any](g *gang, st *cuda.Stream, fn *cuda.Function, l *cuda.Launch, a *P, meet *Args) error {
	if g == nil {
		return cuda.Run(st, fn, l, a)
	}
	return g.join(st, fn, l, unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a)), meet)
}

func (g *gang) join(st *cuda.Stream, fn *cuda.Function, l *cuda.Launch, params []byte, meet *Args) error {
	g.mu.Lock()
	size := 1
	if meet != nil {
		size = max(1, g.sizes[meet.Ctl])
	}
	call := &gangCall{done: make(chan struct{})}
	if size > 1 {
		if at := g.calls[meet.Entry.Signature]; at != nil {
			call = at
		}
		g.calls[meet.Entry.Signature] = call
	}
	call.add(g, st, fn, l, params)
	if len(call.streams) == size {
		if size > 1 {
			delete(g.calls, meet.Entry.Signature)
		}
		call.err = g.launch(call)
		close(call.done)
	}
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.err
	case <-time.After(gangWait):
		g.forget(meet, call)
		return fmt.Errorf("kernels: %s: only some of %d ranks came within %v; ranks launched as one must make the same calls of the same shapes", fn.Name(), size, gangWait)
	}
}

// forget lets a rank that comes too late find no call with the stream of one that has given up.
func (g *gang) forget(meet *Args, call *gangCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls[meet.Entry.Signature] == call {
		delete(g.calls, meet.Entry.Signature)
	}
}

// launch runs the call after what is in front of it in every rank's stream, and before what follows there.
func (g *gang) launch(call *gangCall) error {
	if g.at+len(call.params) > gangBytes {
		g.at = 0
	}
	list := g.lists.Addr() + uintptr(g.at)
	copy(g.lists.Bytes()[g.at:], call.params)
	g.at += (len(call.params) + 255) / 256 * 256
	e, err := g.dev.NewEvent(false)
	if err != nil {
		return err
	}
	first := call.streams[0]
	for _, st := range call.streams[1:] {
		err = errors.Join(err, e.Record(st), first.WaitEvent(e))
	}
	shape := call.shape // by itself: C gets its address
	shape.Grid[1], shape.Overlap = uint32(len(call.streams)), 0
	err = errors.Join(err, cuda.Run(first, call.fn, &shape, &list))
	if len(call.streams) > 1 {
		err = errors.Join(err, e.Record(first))
	}
	for _, st := range call.streams[1:] {
		err = errors.Join(err, st.WaitEvent(e))
	}
	return errors.Join(err, e.Close())
}
