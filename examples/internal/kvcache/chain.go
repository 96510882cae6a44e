package kvcache

// Chain is the hashes of a sequence's full blocks. Each covers all token ids up to the end of its block, and Salt: sequences
// with different salts share nothing.
type Chain struct {
	Salt   string // set before the first Extend
	hashes []uint64
}

// Extend makes sure that all full blocks of tokens have their hashes, and returns them: [len(tokens)/blockSize]. tokens begins
// with the tokens of the call before. The chain keeps the slice.
func (c *Chain) Extend(tokens []int32, blockSize int) []uint64 {
	full := len(tokens) / blockSize
	for i := len(c.hashes); i < full; i++ {
		var h uint64
		if i > 0 {
			h = c.hashes[i-1]
		} else {
			h = hashSalt(c.Salt)
		}
		for _, token := range tokens[i*blockSize : (i+1)*blockSize] {
			h = mix(h, uint64(uint32(token)))
		}
		c.hashes = append(c.hashes, h)
	}
	return c.hashes[:full]
}

func hashSalt(salt string) uint64 {
	h := mix(1, uint64(len(salt)))
	for i := range len(salt) {
		h = mix(h, uint64(salt[i]))
	}
	return h
}

// mix takes one word into a hash: xor, a multiplication, and the upper half folded into the lower. A zero never sticks: the
// constant added sees to that.
func mix(h, x uint64) uint64 {
	h = (h^x)*0xd6e8feb86659fd93 + 0x9e3779b97f4a7c15
	return h ^ h>>32
}
