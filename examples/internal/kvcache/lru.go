package kvcache

// queue is a list of blocks, each in it at most once, with removal from the middle: blocks leave at the front in the order in
// which they came.
type queue struct {
	next, prev []int32 // [total+1]; the last is the ring's anchor
	len        int
}

func newQueue(total int) queue {
	q := queue{next: make([]int32, total+1), prev: make([]int32, total+1)}
	q.next[total], q.prev[total] = int32(total), int32(total)
	return q
}

// first returns the block at the front. The queue must not be empty.
func (q *queue) first() int32 {
	if q.len == 0 {
		panic("kvcache: nothing to evict") // Available was just compared
	}
	return q.next[len(q.next)-1]
}

// push adds b, which is not in the queue, at the back.
func (q *queue) push(b int32) {
	anchor := int32(len(q.next) - 1)
	last := q.prev[anchor]
	q.next[last], q.prev[b] = b, last
	q.next[b], q.prev[anchor] = anchor, b
	q.len++
}

// remove takes out b, which is in the queue.
func (q *queue) remove(b int32) {
	q.next[q.prev[b]], q.prev[q.next[b]] = q.next[b], q.prev[b]
	q.len--
}
