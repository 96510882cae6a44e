package gpurank

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/weftgo/weft/cuda"
)

// Block is a piece of device memory, of Size bytes.
type Block struct {
	Addr uintptr
	Size int
}

// Pool keeps a device's memory until the world closes: freeing device memory waits for kernels, and kernels wait for other
// ranks. What is given back is handed out again for the same size class. Any goroutine may use it.
type Pool struct {
	Device *cuda.Device

	mu   sync.Mutex
	used map[uintptr]int // sizes
	free map[int][]uintptr
}

// class rounds a size up, to an eighth of its power of two.
func class(bytes int) int {
	step := max(256, 1<<max(0, bits.Len(uint(bytes))-4))
	return (max(bytes, 1) + step - 1) / step * step
}

// Take returns at least so many bytes; what is in them is not defined.
func (p *Pool) Take(bytes int) (Block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used, p.free = map[uintptr]int{}, map[int][]uintptr{}
	}
	size := class(bytes)
	if list := p.free[size]; len(list) > 0 {
		addr := list[len(list)-1]
		p.free[size] = list[:len(list)-1]
		p.used[addr] = size
		return Block{addr, size}, nil
	}
	addr, err := p.Device.Alloc(size)
	if err != nil {
		return Block{}, err
	}
	p.used[addr] = size
	return Block{addr, size}, nil
}

// Give takes memory of Take back. Nothing that was enqueued may still use it.
func (p *Pool) Give(addr uintptr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, ok := p.used[addr]
	if !ok {
		return fmt.Errorf("no memory of this rank begins at %#x", addr)
	}
	delete(p.used, addr)
	p.free[size] = append(p.free[size], addr)
	return nil
}

// Close frees everything.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for addr := range p.used {
		errs = append(errs, p.Device.Free(addr))
	}
	for _, list := range p.free {
		for _, addr := range list {
			errs = append(errs, p.Device.Free(addr))
		}
	}
	p.used, p.free = nil, nil
	return errors.Join(errs...)
}
