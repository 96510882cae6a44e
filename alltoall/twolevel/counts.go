package twolevel

// counts is what every rank sends: rows to each rank, rows to each node, and 1 for a refusal. After exchange all ranks have the
// same. Ranks are counted node by node.
type counts struct {
	nodes, ranks, size int
	width              int     // of a rank's entry: size + nodes + 1
	own                []int32 // [width]
	column             []int32 // [nodes, width]: of the ranks of this rank's number
	all                []int32 // [ranks, nodes, width]
	sum                []int   // [size]: scratch
	mine               []int   // [size]: scratch
}

func newCounts(nodes, ranks int) counts {
	size := nodes * ranks
	width := size + nodes + 1
	return counts{nodes: nodes, ranks: ranks, size: size, width: width, own: make([]int32, width), column: make([]int32, nodes*width),
		all: make([]int32, size*width), sum: make([]int, size), mine: make([]int, size)}
}

// give makes o what this rank sends.
func (c *counts) give(o *outward) {
	copy(c.own, o.pairs)
	for n, v := range o.counts {
		c.own[c.size+n] = int32(v)
	}
	c.own[c.width-1] = 0
}

// refuse makes this rank send nothing, and say so.
func (c *counts) refuse() {
	clear(c.own)
	c.own[c.width-1] = 1
}

// entry returns what rank src sends.
func (c *counts) entry(src int) []int32 {
	at := (src%c.ranks*c.nodes + src/c.ranks) * c.width
	return c.all[at : at+c.width]
}

// at returns the rows from src to dst.
func (c *counts) at(src, dst int) int { return int(c.entry(src)[dst]) }

// node returns the rows from src to the rank of its number in a node.
func (c *counts) node(src, node int) int { return int(c.entry(src)[c.size+node]) }

// row returns what src sends to each rank, and toNodes what it sends to each node, valid until the next call of either.
func (c *counts) row(src int) []int {
	for d := range c.size {
		c.mine[d] = c.at(src, d)
	}
	return c.mine
}

func (c *counts) toNodes(src int) []int {
	for n := range c.nodes {
		c.mine[n] = c.node(src, n)
	}
	return c.mine[:c.nodes]
}

// refuser returns the first rank that refused, or -1.
func (c *counts) refuser() int {
	for r := range c.size {
		if c.entry(r)[c.width-1] != 0 {
			return r
		}
	}
	return -1
}

// fullest returns the first rank that would receive the most rows.
func (c *counts) fullest() (dst, rows int) {
	clear(c.sum)
	for src := range c.size {
		for d, n := range c.entry(src)[:c.size] {
			c.sum[d] += int(n)
		}
	}
	return most(c.sum)
}

// fullestRelay returns the first rank that would relay the most rows.
func (c *counts) fullestRelay() (relay, rows int) {
	clear(c.sum)
	for src := range c.size {
		for n := range c.nodes {
			c.sum[n*c.ranks+src%c.ranks] += c.node(src, n)
		}
	}
	return most(c.sum)
}

func most(list []int) (at, value int) {
	for i, n := range list {
		if n > value {
			at, value = i, n
		}
	}
	return at, value
}

// clip keeps the first limit rows that each rank receives, in (source, token) order.
func (c *counts) clip(limit int) {
	for d := range c.size {
		left := limit
		for src := range c.size {
			v := &c.entry(src)[d]
			*v = min(*v, int32(left))
			left -= int(*v)
		}
	}
}

// clipRelay keeps the first limit rows that each rank relays, in (source, token) order.
func (c *counts) clipRelay(limit int) {
	for n := range c.nodes {
		for local := range c.ranks {
			left := limit
			for src := local; src < c.size; src += c.ranks {
				v := &c.entry(src)[c.size+n]
				*v = min(*v, int32(left))
				left -= int(*v)
			}
		}
	}
}
