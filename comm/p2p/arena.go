package p2p

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// align is the alignment of what an arena gives out.
const align = 256

// arena gives out pieces of a rank's device memory. Free pieces are kept in a list by address and joined with their
// neighbours. Giving out and taking back touches the host alone; only growing calls the driver.
type arena struct {
	grow func(bytes int) (base uintptr, size int, release func() error, err error)

	mu      sync.Mutex
	spare   []piece // by address
	used    map[uintptr]piece
	release []func() error
}

type piece struct {
	addr  uintptr
	size  int
	chunk int // pieces of different chunks are never joined: one copy must not cross them
}

// growBytes is the least that an arena grows by.
const growBytes = 64 << 20

// more adds memory.
func (a *arena) more(bytes int) error {
	base, size, release, err := a.grow(bytes)
	if err != nil {
		return err
	}
	a.release = append(a.release, release)
	a.insert(piece{base, size, len(a.release)})
	return nil
}

// alloc returns the address of bytes, from the first free piece that is large enough.
func (a *arena) alloc(bytes int) (uintptr, error) {
	size := max(align, (bytes+align-1)/align*align)
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.find(size)
	if i < 0 {
		if err := a.more(max(size, growBytes)); err != nil {
			return 0, fmt.Errorf("%d bytes beyond the arena's: %w", size, err)
		}
		i = a.find(size)
	}
	p := &a.spare[i]
	got := piece{p.addr, size, p.chunk}
	p.addr += uintptr(size)
	p.size -= size
	if p.size == 0 {
		a.spare = slices.Delete(a.spare, i, i+1)
	}
	if a.used == nil {
		a.used = map[uintptr]piece{}
	}
	a.used[got.addr] = got
	return got.addr, nil
}

func (a *arena) find(size int) int {
	return slices.IndexFunc(a.spare, func(p piece) bool { return p.size >= size })
}

// free takes a piece back.
func (a *arena) free(addr uintptr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.used[addr]
	if !ok {
		return fmt.Errorf("%#x is not the address of memory that was given out", addr)
	}
	delete(a.used, addr)
	a.insert(p)
	return nil
}

// insert adds a free piece. Pieces that touch become one.
func (a *arena) insert(p piece) {
	i, _ := slices.BinarySearchFunc(a.spare, p, func(x, y piece) int {
		if x.addr < y.addr {
			return -1
		}
		return 1
	})
	a.spare = slices.Insert(a.spare, i, p)
	joins := func(x, y piece) bool { return x.chunk == y.chunk && x.addr+uintptr(x.size) == y.addr }
	if i+1 < len(a.spare) && joins(p, a.spare[i+1]) {
		a.spare[i].size += a.spare[i+1].size
		a.spare = slices.Delete(a.spare, i+1, i+2)
	}
	if i > 0 && joins(a.spare[i-1], a.spare[i]) {
		a.spare[i-1].size += a.spare[i].size
		a.spare = slices.Delete(a.spare, i, i+1)
	}
}

// close gives all memory back to the device.
func (a *arena) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, release := range a.release {
		errs = append(errs, release())
	}
	a.release, a.spare, a.used = nil, nil, nil
	return errors.Join(errs...)
}
