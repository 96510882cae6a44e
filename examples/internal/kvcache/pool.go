package kvcache

import (
	"errors"
	"fmt"
)

// ErrExhausted is what Alloc's error wraps when too few blocks are free.
var ErrExhausted = errors.New("key/value cache exhausted")

// Pool is the blocks of one replica. One goroutine uses it at a time.
type Pool struct {
	blockSize int
	free      []int32 // a stack: the block freed last is used next
	holders   []int32 // [total]; freed (-1) when in free
}

const freed = -1

// New returns a pool of numBlocks blocks of blockSize positions each.
func New(numBlocks, blockSize int) (*Pool, error) {
	if numBlocks < 1 || blockSize < 1 || numBlocks > 1<<31-1 {
		return nil, fmt.Errorf("kvcache: %d blocks of %d positions: both must be at least 1", numBlocks, blockSize)
	}
	p := &Pool{blockSize: blockSize, free: make([]int32, numBlocks), holders: make([]int32, numBlocks)}
	for i := range p.free {
		p.free[i] = int32(numBlocks - 1 - i)
		p.holders[i] = freed
	}
	return p, nil
}

// Total returns the number of blocks.
func (p *Pool) Total() int { return len(p.holders) }

// Free returns the number of blocks that nobody holds.
func (p *Pool) Free() int { return len(p.free) }

// Used returns the number of blocks that somebody holds.
func (p *Pool) Used() int { return len(p.holders) - len(p.free) }

// BlockSize returns the positions in a block.
func (p *Pool) BlockSize() int { return p.blockSize }

// BlocksFor returns the blocks that numTokens positions need.
func (p *Pool) BlocksFor(numTokens int) int { return (numTokens + p.blockSize - 1) / p.blockSize }

// Alloc appends n blocks to dst, each with one holder, and returns it. When fewer are free it takes none and returns
// dst as it was with an error that wraps ErrExhausted.
func (p *Pool) Alloc(dst []int32, n int) ([]int32, error) {
	if n < 0 {
		return dst, fmt.Errorf("kvcache: %d blocks asked for", n)
	}
	if n > len(p.free) {
		return dst, fmt.Errorf("%w: %d blocks needed, %d of %d free", ErrExhausted, n, len(p.free), len(p.holders))
	}
	for range n {
		b := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		p.holders[b] = 1
		dst = append(dst, b)
	}
	return dst, nil
}

// Retain adds a holder to each block. A block that is free or not of this pool is an error, and then no holder is added.
func (p *Pool) Retain(blocks ...int32) error {
	for _, b := range blocks {
		if err := p.held(b); err != nil {
			return fmt.Errorf("kvcache: retain: %w", err)
		}
	}
	for _, b := range blocks {
		p.holders[b]++
	}
	return nil
}

// Release takes one holder from each block and frees those that have none left. A block with too few holders (a double
// free) or not of this pool is an error, and then nothing is released.
func (p *Pool) Release(blocks ...int32) error {
	for i, b := range blocks {
		err := p.held(b)
		if err == nil {
			p.holders[b]--
			continue
		}
		for _, b := range blocks[:i] {
			p.holders[b]++
		}
		return fmt.Errorf("kvcache: release: %w", err)
	}
	for _, b := range blocks {
		if p.holders[b] == 0 { // not yet in free, even if blocks names it twice
			p.holders[b] = freed
			p.free = append(p.free, b)
		}
	}
	return nil
}

func (p *Pool) held(b int32) error {
	if b < 0 || int(b) >= len(p.holders) {
		return fmt.Errorf("block %d is not in [0, %d)", b, len(p.holders))
	}
	if p.holders[b] <= 0 {
		return fmt.Errorf("block %d is free already", b)
	}
	return nil
}

// Holders returns the number of holders of a block: 0 if it is free.
func (p *Pool) Holders(block int32) int { return int(max(p.holders[block], 0)) }

// Check verifies the books: each block is either free, once, or held. It is for tests.
func (p *Pool) Check() error {
	inFree := make([]bool, len(p.holders))
	for _, b := range p.free {
		if inFree[b] || p.holders[b] != freed {
			return fmt.Errorf("kvcache: block %d is in the free list twice or with %d holders", b, p.holders[b])
		}
		inFree[b] = true
	}
	for b, n := range p.holders {
		if !inFree[b] && n < 1 {
			return fmt.Errorf("kvcache: block %d is lost: %d holders and not free", b, n)
		}
	}
	return nil
}
