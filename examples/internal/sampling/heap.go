package sampling

func better(a, b weighed) bool { return a.before(b) }
func worse(a, b weighed) bool  { return b.before(a) }

// heapify orders h so that h[0] is first by the order given, and so on down the tree. (container/heap would call an
// interface for every comparison.)
func heapify(h []weighed, first func(a, b weighed) bool) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, i, first)
	}
}

// sink moves h[i] down to where it belongs.
func sink(h []weighed, i int, first func(a, b weighed) bool) {
	if i >= len(h) {
		return
	}
	w := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && first(h[r], h[child]) {
			child = r
		}
		if !first(h[child], w) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = w
}
