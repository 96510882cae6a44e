package kvcache

import (
	"fmt"
	"slices"
)

// index says which blocks hold which beginnings.
type index struct {
	byHash  map[uint64]int32
	entries []entry // [total]; what block b is known to hold
	tokens  []int32 // [total * blockSize] token ids of the entries
	unheld  queue   // of blocks with an entry and without holders, the one unused for longest first
	lastID  uint64
}

// entry is the contents of one block: its tokens, behind those of its parent. Parents are named by id, which is never used again,
// and not by block, which may hold something else by now.
type entry struct {
	id     uint64 // 0: the block is not in the index
	parent uint64 // id; 0 at the beginning of a sequence
	salt   string // at the beginning of a sequence
	hash   uint64 // byHash[hash] is this block
}

// NewCached returns a pool with a prefix cache.
func NewCached(numBlocks, blockSize int) (*Pool, error) {
	p, err := New(numBlocks, blockSize)
	if err != nil {
		return nil, err
	}
	p.prefixes = &index{byHash: make(map[uint64]int32, numBlocks), entries: make([]entry, numBlocks),
		tokens: make([]int32, numBlocks*blockSize), unheld: newQueue(numBlocks)}
	return p, nil
}

// CachesPrefixes reports whether the pool has a prefix cache.
func (p *Pool) CachesPrefixes() bool { return p.prefixes != nil }

// Match appends to dst the blocks that hold the longest stored beginning of tokens, full blocks only, and returns it. It adds no
// holders: the caller calls Retain before anything else takes blocks. A pool without a prefix cache finds nothing.
func (p *Pool) Match(dst []int32, c *Chain, tokens []int32) []int32 {
	if p.prefixes == nil {
		return dst
	}
	parent := uint64(0)
	for i, hash := range c.Extend(tokens, p.blockSize) {
		b, ok := p.prefixes.byHash[hash]
		if !ok || !p.holds(b, parent, c.Salt, p.block(tokens, i)) {
			break
		}
		parent = p.prefixes.entries[b].id
		dst = append(dst, b)
	}
	return dst
}

// Idle returns how many of the blocks nobody holds: Retain takes these out of Available.
func (p *Pool) Idle(blocks []int32) int {
	n := 0
	for _, b := range blocks {
		if p.idle(b) {
			n++
		}
	}
	return n
}

// Store notes that blocks hold the keys and values of tokens, whose full blocks can then be found by Match. The caller holds the
// blocks, all positions of tokens have been computed, and nobody writes to them any more. Contents that are there already
// stay where they are; the caller's block is then free when it lets go. Without a prefix cache it does nothing.
func (p *Pool) Store(c *Chain, tokens, blocks []int32) {
	if p.prefixes == nil {
		return
	}
	parent := uint64(0)
	for i, hash := range c.Extend(tokens, p.blockSize) {
		own := p.block(tokens, i)
		b, ok := p.prefixes.byHash[hash]
		if !ok || !p.holds(b, parent, c.Salt, own) {
			// A parent that was evicted and computed again has a new id: then this replaces what nobody can find any more.
			if ok && b != blocks[i] {
				p.unindex(b)
			}
			b = blocks[i]
			p.enter(b, parent, hash, c.Salt, own)
		}
		parent = p.prefixes.entries[b].id
	}
}

// block returns the tokens of block i.
func (p *Pool) block(tokens []int32, i int) []int32 { return tokens[i*p.blockSize : (i+1)*p.blockSize] }

// holds compares what block b is known to hold, by the ids themselves.
func (p *Pool) holds(b int32, parent uint64, salt string, tokens []int32) bool {
	e := &p.prefixes.entries[b]
	return e.parent == parent && (parent != 0 || e.salt == salt) && slices.Equal(p.block(p.prefixes.tokens, int(b)), tokens)
}

// enter makes b findable. A block that was so under another parent keeps its id, so that those behind it stay.
func (p *Pool) enter(b int32, parent, hash uint64, salt string, tokens []int32) {
	if p.holders[b] < 1 {
		panic(fmt.Sprintf("kvcache: block %d is stored and not held", b))
	}
	x := p.prefixes
	e := &x.entries[b]
	if e.id == 0 {
		x.lastID++
		e.id = x.lastID
	} else {
		delete(x.byHash, e.hash)
	}
	e.parent, e.hash, e.salt = parent, hash, ""
	if parent == 0 {
		e.salt = salt
	}
	copy(p.block(x.tokens, int(b)), tokens)
	x.byHash[hash] = b
}

// forget evicts a block that nobody holds: it is free then.
func (p *Pool) forget(b int32) {
	p.unindex(b)
	if p.holders[b] != freed {
		panic(fmt.Sprintf("kvcache: block %d with %d holders evicted", b, p.holders[b]))
	}
}

// unindex makes b unfindable. If nobody holds it, it is free.
func (p *Pool) unindex(b int32) {
	delete(p.prefixes.byHash, p.prefixes.entries[b].hash)
	p.prefixes.entries[b] = entry{}
	if p.holders[b] == idle {
		p.prefixes.unheld.remove(b)
		p.holders[b] = freed
		p.free = append(p.free, b)
	}
}

// checkCache is Check for the cache. It marks the cached blocks in unheld.
func (p *Pool) checkCache(unheld []bool) error {
	x := p.prefixes
	anchor := int32(len(x.unheld.next) - 1)
	n := 0
	for b := x.unheld.next[anchor]; b != anchor; b = x.unheld.next[b] {
		if unheld[b] || p.holders[b] != idle || x.entries[b].id == 0 || x.unheld.next[x.unheld.prev[b]] != b {
			return fmt.Errorf("kvcache: cached block %d: free %v, %d holders, id %d", b, unheld[b], p.holders[b], x.entries[b].id)
		}
		unheld[b] = true
		n++
	}
	if n != x.unheld.len {
		return fmt.Errorf("kvcache: %d blocks in a queue of %d", n, x.unheld.len)
	}
	found := 0
	for b := range x.entries {
		e := &x.entries[b]
		if e.id == 0 {
			continue
		}
		found++
		if x.byHash[e.hash] != int32(b) || p.holders[b] == freed {
			return fmt.Errorf("kvcache: block %d has an entry, %d holders, and its hash leads to %d", b, p.holders[b], x.byHash[e.hash])
		}
	}
	if found != len(x.byHash) {
		return fmt.Errorf("kvcache: %d hashes for %d entries", len(x.byHash), found)
	}
	return nil
}
