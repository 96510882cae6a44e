package engine

import "github.com/weftgo/weft/examples/internal/kvcache"

// affinity remembers which beginnings of prompts went to which replica. It is what the front door knows of the replicas'
// prefix caches: it runs ahead of them, because a prompt counts as soon as it is sent there, and of what they evict it learns
// nothing, but forgets at a similar rate.
//
//	chain of a prompt:  h0 h1 h2 h3        replica 0: {h0 h1 h2 x3}   3 blocks in common
//	                                       replica 1: {y0 y1}         0
type affinity struct {
	blockSize int
	capacity  int        // hashes of one generation; a replica remembers up to two
	sent      []sentPart // [replicas]
}

// sentPart is the beginnings that went to one replica. When recent is full, it becomes old, and what was old is forgotten; a
// hash that is sent again moves to recent.
type sentPart struct{ recent, old map[uint64]struct{} }

func newAffinity(replicas, numBlocks, blockSize int) *affinity {
	a := &affinity{blockSize: blockSize, capacity: numBlocks, sent: make([]sentPart, replicas)}
	for i := range a.sent {
		a.sent[i].recent = map[uint64]struct{}{}
	}
	return a
}

// chain returns the hashes of a prompt's blocks that a prefix cache could have: the last token is always run.
func (a *affinity) chain(req *Request) []uint64 {
	c := kvcache.Chain{Salt: req.CacheSalt}
	return c.Extend(req.IDs[:len(req.IDs)-1], a.blockSize)
}

// expected returns how many tokens of the prompt with that chain the replica was sent before.
func (a *affinity) expected(replica int, chain []uint64) int {
	s := &a.sent[replica]
	n := 0
	for n < len(chain) && s.has(chain[n]) {
		n++
	}
	return n * a.blockSize
}

// add notes that a prompt with that chain is sent to the replica.
func (a *affinity) add(replica int, chain []uint64) {
	s := &a.sent[replica]
	for _, hash := range chain[:min(len(chain), a.capacity)] {
		if _, ok := s.recent[hash]; ok {
			continue
		}
		if len(s.recent) >= a.capacity {
			s.recent, s.old = s.old, s.recent
			clear(s.recent)
			if s.recent == nil {
				s.recent = map[uint64]struct{}{}
			}
		}
		s.recent[hash] = struct{}{}
	}
}

func (s *sentPart) has(hash uint64) bool {
	if _, ok := s.recent[hash]; ok {
		return true
	}
	_, ok := s.old[hash]
	return ok
}
