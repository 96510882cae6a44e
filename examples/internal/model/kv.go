package model

// lanes is the width of a panel of package gemm, and so of the key and value panels.
const lanes = 16

// cache holds the keys and values of one layer on one rank, in blocks of blockSize positions, so that package gemm multiplies
// by them as they lie:
//
//	keys   [head][block][blockSize/16][headDim][16]   scores    [m, 16] = Q [m, headDim] x panel
//	values [head][block][width/16][blockSize][16]     outputs  += P [m, keys] x panel
//
// width is headDim rounded up to 16; the columns beyond headDim are never written and hold zero.
type cache struct {
	keys, values []float32
}

// geometry is the shape that the caches of all layers share.
type geometry struct {
	heads     int // key/value heads of this rank
	headDim   int
	width     int // headDim rounded up to lanes
	blockSize int
	numBlocks int
}

func newGeometry(heads, headDim, blockSize, numBlocks int) geometry {
	return geometry{heads: heads, headDim: headDim, width: (headDim + lanes - 1) / lanes * lanes,
		blockSize: blockSize, numBlocks: numBlocks}
}

// floats returns the float32 values of the keys and of the values of one layer.
func (g geometry) floats() (keys, values int) {
	n := g.heads * g.numBlocks * g.blockSize
	return n * g.headDim, n * g.width
}

func (g geometry) newCache() cache {
	k, v := g.floats()
	return cache{keys: make([]float32, k), values: make([]float32, v)}
}

// keyBlock returns a block of keys of one head.
func (g geometry) keyBlock(c *cache, head, block int) []float32 {
	n := g.blockSize * g.headDim
	at := (head*g.numBlocks + block) * n
	return c.keys[at : at+n]
}

// valueBlock returns a block of values of one head.
func (g geometry) valueBlock(c *cache, head, block int) []float32 {
	n := g.blockSize * g.width
	at := (head*g.numBlocks + block) * n
	return c.values[at : at+n]
}

// put stores one key and value [headDim] at slot = block x blockSize + offset.
func (g geometry) put(c *cache, head, slot int, key, value []float32) {
	block, off := slot/g.blockSize, slot%g.blockSize
	panel := g.keyBlock(c, head, block)[off/lanes*g.headDim*lanes:]
	col := panel[off%lanes:]
	for i, x := range key {
		col[i*lanes] = x
	}
	values := g.valueBlock(c, head, block)
	for i := 0; i < len(value); i += lanes {
		row := values[(i*g.blockSize + off*lanes):]
		if len(value)-i >= lanes {
			*(*[lanes]float32)(row) = [lanes]float32(value[i:]) // no call, unlike copy
		} else {
			copy(row, value[i:])
		}
	}
}
