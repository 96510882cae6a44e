package suite

import (
	"bytes"
	"fmt"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// period is after how many elements a stream repeats at the latest. It is a prime next to a power of two, so that a block that was moved
// to a wrong place never looks right.
const period = 65537

// contributors is how many ranks add something other than the neutral value to one sum.
const contributors = 4

// Stream is an endless sequence of elements, of which one period is stored.
type Stream struct {
	data  []byte // whole elements
	width int    // bytes of an element
}

// Pattern is the inputs of all ranks and their reduction.
type Pattern struct {
	Reduced Stream
	inputs  []Stream
}

// NewPattern makes inputs of ranks for a reduction, or inputs that are only moved, of up to n elements before they repeat.
// Every sum of them is exact in t.
func NewPattern(t dtype.DType, n, ranks int, reduces bool, redop comm.ReduceOp, seed uint64) (*Pattern, error) {
	p := &Pattern{}
	n = min(max(n, 1), period)
	values := make([]float32, n)
	total := make([]float32, n)
	for r := range ranks {
		for i := range values {
			values[i] = input(seed, r, i, ranks, reduces, redop)
			total[i] = fold(redop, total[i], values[i], r == 0)
		}
		s, err := encode(values, t)
		if err != nil {
			return nil, err
		}
		p.inputs = append(p.inputs, s)
	}
	if !reduces {
		return p, nil
	}
	if redop == comm.Avg {
		for i := range total {
			total[i] /= float32(ranks)
		}
	}
	var err error
	p.Reduced, err = encode(total, t)
	return p, err
}

// Input is what rank r gives.
func (p *Pattern) Input(r int) Stream { return p.inputs[r] }

// input is element i of rank r: a whole number up to 7 when it is only moved or compared; for sums and products one that
// at most four ranks raise above the neutral value, and not by more than to 2.
func input(seed uint64, r, i, ranks int, reduces bool, redop comm.ReduceOp) float32 {
	h := mix(seed ^ uint64(r)<<32 ^ uint64(i))
	takesPart := (i+r)%ranks < contributors
	switch {
	case !reduces || redop == comm.Min || redop == comm.Max:
		return float32(h % 8)
	case redop == comm.Prod && takesPart:
		return float32(1 + h%2)
	case redop == comm.Prod:
		return 1
	case takesPart:
		return float32(h % 3)
	}
	return 0
}

// fold adds the value v of the next rank to the reduction so far.
func fold(redop comm.ReduceOp, sum, v float32, first bool) float32 {
	switch {
	case first:
		return v
	case redop == comm.Prod:
		return sum * v
	case redop == comm.Min:
		return min(sum, v)
	case redop == comm.Max:
		return max(sum, v)
	}
	return sum + v
}

// mix is the finaliser of splitmix64: neighbouring numbers give unrelated ones.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func encode(values []float32, t dtype.DType) (Stream, error) {
	s := Stream{data: make([]byte, len(values)*t.Size()), width: t.Size()}
	if err := dtype.FromFloat32s(s.data, values, t); err != nil {
		return Stream{}, fmt.Errorf("inputs of type %v: %w", t, err)
	}
	return s, nil
}

// write fills dst with the stream from element start on.
func (s Stream) write(dst []byte, start int) {
	for len(dst) > 0 {
		at := start % (len(s.data) / s.width)
		n := copy(dst, s.data[at*s.width:])
		dst, start = dst[n:], start+n/s.width
	}
}

// wrong counts the elements of got that differ from the stream from element start on.
func (s Stream) wrong(got []byte, start int) (count int64) {
	for len(got) > 0 {
		at := start % (len(s.data) / s.width)
		want := s.data[at*s.width:]
		n := min(len(got), len(want))
		if !bytes.Equal(got[:n], want[:n]) {
			for i := 0; i < n; i += s.width {
				if !bytes.Equal(got[i:i+s.width], want[i:i+s.width]) {
					count++
				}
			}
		}
		got, start = got[n:], start+n/s.width
	}
	return count
}

// segment says that elements [at, at+n) of a result are values from element start on.
type segment struct {
	at, n  int
	values Stream
	start  int
}
