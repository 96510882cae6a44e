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
	holders   []int32 // [total]; freed when in free, idle when in prefixes.unheld
	prefixes  *index  // nil without a prefix cache
}

// What holders says of a block that nobody holds.
const (
	freed = -1 // it has no contents
	idle  = -2 // its contents may serve another sequence
)

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

// Free returns the number of blocks that nobody holds and that have no contents.
func (p *Pool) Free() int { return len(p.free) }

// Cached returns the number of blocks that nobody holds but whose contents Match may find. It is 0 without a prefix cache.
func (p *Pool) Cached() int {
	if p.prefixes == nil {
		return 0
	}
	return p.prefixes.unheld.len
}

// Available returns the number of blocks that Alloc can give: Free and Cached.
func (p *Pool) Available() int { return p.Free() + p.Cached() }

// Used returns the number of blocks that somebody holds.
func (p *Pool) Used() int { return p.Total() - p.Available() }

// BlockSize returns the positions in a block.
func (p *Pool) BlockSize() int { return p.blockSize }

// BlocksFor returns the blocks that numTokens positions need.
func (p *Pool) BlocksFor(numTokens int) int { return (numTokens + p.blockSize - 1) / p.blockSize }

// Alloc appends n blocks to dst, each with one holder, and returns it. Free blocks go first, then cached ones, those unused
// for longest first; their contents are forgotten. When fewer are available it takes none and returns dst as it was with
// an error that wraps ErrExhausted.
func (p *Pool) Alloc(dst []int32, n int) ([]int32, error) {
	if n < 0 {
		return dst, fmt.Errorf("kvcache: %d blocks asked for", n)
	}
	if n > p.Available() {
		return dst, fmt.Errorf("%w: %d blocks needed, %d of %d free", ErrExhausted, n, p.Available(), len(p.holders))
	}
	for range n {
		if len(p.free) == 0 {
			p.forget(p.prefixes.unheld.first())
		}
		b := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		p.holders[b] = 1
		dst = append(dst, b)
	}
	return dst, nil
}

// Retain adds a holder to each block, of which cached ones had none. A block that is free or not of this pool is an error,
// and then no holder is added.
func (p *Pool) Retain(blocks ...int32) error {
	for _, b := range blocks {
		if err := p.held(b); err != nil && !p.idle(b) {
			return fmt.Errorf("kvcache: retain: %w", err)
		}
	}
	for _, b := range blocks {
		if p.holders[b] == idle {
			p.prefixes.unheld.remove(b)
			p.holders[b] = 0
		}
		p.holders[b]++
	}
	return nil
}

// Release takes one holder from each block. Those that have none left become cached if Match can find them, and else free.
// Blocks go from last to first, so that the end of a sequence is evicted before its beginning, without which it is of no
// use. A block with too few holders (a double free) or not of this pool is an error, and then nothing is released.
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
	for i := len(blocks) - 1; i >= 0; i-- {
		switch b := blocks[i]; {
		case p.holders[b] != 0: // held by others, or blocks names it twice and it is dealt with
		case p.prefixes != nil && p.prefixes.entries[b].id != 0:
			p.holders[b] = idle
			p.prefixes.unheld.push(b)
		default:
			p.holders[b] = freed
			p.free = append(p.free, b)
		}
	}
	return nil
}

// idle reports whether nobody holds block b but its contents are still there. b may be out of range.
func (p *Pool) idle(b int32) bool { return b >= 0 && int(b) < len(p.holders) && p.holders[b] == idle }

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

// Check verifies the books: each block is free, once, or cached, once, or held, and the cache finds exactly the blocks
// that it should. It is for tests.
func (p *Pool) Check() error {
	unheld := make([]bool, len(p.holders))
	for _, b := range p.free {
		if unheld[b] || p.holders[b] != freed {
			return fmt.Errorf("kvcache: block %d is in the free list twice or with %d holders", b, p.holders[b])
		}
		unheld[b] = true
	}
	if p.prefixes != nil {
		if err := p.checkCache(unheld); err != nil {
			return err
		}
	}
	for b, n := range p.holders {
		if !unheld[b] && n < 1 {
			return fmt.Errorf("kvcache: block %d is lost: %d holders and not free", b, n)
		}
	}
	return nil
}
