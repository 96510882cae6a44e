package rendezvous

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/weftgo/weft/comm"
)

// Limits bound what a store holds, so that a program that has lost its mind ends with an error and not with the memory of
// the machine. Zero fields have the defaults.
type Limits struct {
	KeyBytes   int // of one key; 512
	ValueBytes int // of one value; 1 MiB
	TotalBytes int // of all keys and values; 64 MiB
	Waiting    int // operations of one process that wait at the same time; 4096
}

func (l Limits) withDefaults() Limits {
	def := func(x *int, v int) {
		if *x <= 0 {
			*x = v
		}
	}
	def(&l.KeyBytes, 512)
	def(&l.ValueBytes, 1<<20)
	def(&l.TotalBytes, 64<<20)
	def(&l.Waiting, 4096)
	l.KeyBytes = min(l.KeyBytes, math.MaxUint16)
	l.ValueBytes = min(l.ValueBytes, 1<<30)
	return l
}

// maxRanks bounds the size of an exchange.
const maxRanks = 1 << 16

// entryBytes is what an entry is counted for beside its key and value.
const entryBytes = 64

// slotBytes is what an open round is counted for per rank, beside the values.
const slotBytes = 64

// exchangeBytes is what a name with open rounds is counted for, beside those.
func exchangeBytes(name string, size int) int { return len(name) + entryBytes + 8*size }

// table is the state of a store: what the server and Memory share. Nothing in it blocks.
type table struct {
	limits Limits
	mu     sync.Mutex
	bytes  int // of all entries, against limits.TotalBytes
	values map[string][]byte
	gets   map[string][]*waiter
	rounds map[string]*exchange
}

// waiter is one operation that waits. The caller sets done, which is called once, with the table locked, unless cancel comes
// first; it must not block. The values are the table's own for Get and must not be changed.
type waiter struct {
	done  func(values [][]byte)
	key   string
	round *round // nil: waits for key
	over  bool   // done was called, or it was cancelled
}

// exchange is the rounds of one name. It is there while one is open: names are often used once.
type exchange struct {
	size  int
	calls []uint64 // [size] rounds that each rank has begun
	open  map[uint64]*round
}

// round is one generation of an exchange.
type round struct {
	values  [][]byte
	here    []bool
	missing int
	waiters []*waiter
}

func newTable(l Limits) *table {
	return &table{limits: l.withDefaults(), values: map[string][]byte{}, gets: map[string][]*waiter{}, rounds: map[string]*exchange{}}
}

func invalid(format string, args ...any) error {
	return &comm.Error{Peer: comm.NoPeer, Code: comm.Invalid, Err: fmt.Errorf(format, args...)}
}

// room checks that key and value may be stored where old bytes become free.
func (t *table) room(key string, value []byte, old int) error {
	switch l := t.limits; {
	case len(key) == 0 || len(key) > l.KeyBytes:
		return invalid("a key of %d bytes; it must have 1 to %d", len(key), l.KeyBytes)
	case len(value) > l.ValueBytes:
		return invalid("a value of %d bytes > %d; the store is for addresses and agreements, not for tensors", len(value), l.ValueBytes)
	case t.bytes-old+len(key)+len(value)+entryBytes > l.TotalBytes:
		return invalid("%d bytes more than the %d that are stored exceed %d", len(key)+len(value)+entryBytes, t.bytes, l.TotalBytes)
	}
	return nil
}

func (t *table) set(key string, value []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(key, bytes.Clone(value))
}

// put stores a value that is the table's and wakes who waits for it.
func (t *table) put(key string, value []byte) error {
	old := 0
	if was, ok := t.values[key]; ok {
		old = len(key) + len(was) + entryBytes
	}
	if err := t.room(key, value, old); err != nil {
		return err
	}
	if value == nil {
		value = []byte{}
	}
	t.bytes += len(key) + len(value) + entryBytes - old
	t.values[key] = value
	for _, w := range t.gets[key] {
		w.finish([][]byte{bytes.Clone(value)})
	}
	delete(t.gets, key)
	return nil
}

func (t *table) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was, ok := t.values[key]; ok {
		t.bytes -= len(key) + len(was) + entryBytes
		delete(t.values, key)
	}
}

func (t *table) add(key string, delta int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var n int64
	if was, ok := t.values[key]; ok {
		var err error
		if n, err = strconv.ParseInt(string(was), 10, 64); err != nil {
			return 0, invalid("its value is no number: %.20q", was)
		}
	}
	if sum := n + delta; (sum > n) != (delta > 0) && delta != 0 {
		return 0, invalid("%d + %d overflows", n, delta)
	}
	n += delta
	return n, t.put(key, strconv.AppendInt(nil, n, 10))
}

// get calls w.done with one value, at once or later.
func (t *table) get(key string, w *waiter) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.room(key, nil, t.bytes); err != nil {
		return err
	}
	if v, ok := t.values[key]; ok {
		w.finish([][]byte{bytes.Clone(v)})
		return nil
	}
	if w.key = key; !w.over {
		t.gets[key] = append(t.gets[key], w)
	}
	return nil
}

// gather gives rank's value to its next round of name and calls w.done with everyone's when that is full.
func (t *table) gather(name string, rank, size int, mine []byte, w *waiter) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.room(name, mine, 0); err != nil {
		return err
	}
	if size < 1 || size > maxRanks || rank < 0 || rank >= size {
		return invalid("rank %d of %d", rank, size)
	}
	x := t.rounds[name]
	if x == nil {
		cost := exchangeBytes(name, size)
		if t.bytes+cost > t.limits.TotalBytes {
			return invalid("%d bytes more than the %d that are stored exceed %d", cost, t.bytes, t.limits.TotalBytes)
		}
		t.bytes += cost
		x = &exchange{size: size, calls: make([]uint64, size), open: map[uint64]*round{}}
		t.rounds[name] = x
	}
	if x.size != size {
		return invalid("%d ranks here, but others said %d", size, x.size)
	}
	r := x.open[x.calls[rank]+1]
	if r == nil {
		if cost := size * slotBytes; t.bytes+cost > t.limits.TotalBytes {
			return invalid("%d bytes more than the %d that are stored exceed %d", cost, t.bytes, t.limits.TotalBytes)
		}
		t.bytes += size * slotBytes
		r = &round{values: make([][]byte, size), here: make([]bool, size), missing: size}
		x.open[x.calls[rank]+1] = r
	}
	x.calls[rank]++
	t.bytes += len(mine)
	r.values[rank], r.here[rank] = append([]byte{}, mine...), true
	w.key, w.round = name, r
	if !w.over {
		r.waiters = append(r.waiters, w)
	}
	if r.missing--; r.missing > 0 {
		return nil
	}
	delete(x.open, x.calls[rank]) // all ranks are in it, so no later call can want it
	t.bytes -= size * slotBytes
	if len(x.open) == 0 { // all ranks have begun as many rounds, so the next is like the first
		delete(t.rounds, name)
		t.bytes -= exchangeBytes(name, size)
	}
	for _, v := range r.values {
		t.bytes -= len(v)
	}
	for _, w := range r.waiters {
		values := make([][]byte, size)
		for i, v := range r.values {
			values[i] = bytes.Clone(v)
		}
		w.finish(values)
	}
	return nil
}

func (w *waiter) finish(values [][]byte) {
	if !w.over {
		w.over = true
		w.done(values)
	}
}

// cancel ends w's wait and says what it waited for; it returns "" when w was finished before. What w gave to a round stays there.
func (t *table) cancel(w *waiter) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.over {
		return ""
	}
	w.over = true
	if w.round != nil {
		return "waited for " + w.round.absent()
	}
	left := t.gets[w.key]
	for i, x := range left {
		if x == w {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	if len(left) == 0 {
		delete(t.gets, w.key)
	} else {
		t.gets[w.key] = left
	}
	return "nobody has set it"
}

// absent names up to eight ranks that have not come.
func (r *round) absent() string {
	var ranks []string
	for i, here := range r.here {
		if !here {
			if len(ranks) == 8 {
				ranks = append(ranks, "...")
				break
			}
			ranks = append(ranks, strconv.Itoa(i))
		}
	}
	if r.missing == 1 {
		return "rank " + ranks[0]
	}
	return fmt.Sprintf("%d of %d ranks: %s", r.missing, len(r.here), strings.Join(ranks, ", "))
}
