package moe

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/routing"
)

// index is ep.Index as slices: slots of (row, k) pairs grouped by local expert, those of one expert in (row, k) order.
type index struct {
	row, k  []int32   // [numSlots]
	weight  []float32 // [numSlots]
	counts  []int32   // [numLocal]: slots in use of each expert; padding follows them
	offsets []int32   // [numLocal+1]: first slot of each expert
}

func ofRouting(x *routing.Index, numLocal int) index {
	return index{row: x.Row, k: x.K, weight: x.Weight, counts: x.Counts[:numLocal], offsets: x.Offsets}
}

func ofExchange(i ep.Index, numLocal int) (x index, err error) {
	if numLocal == 0 {
		return x, nil
	}
	ints := func(b comm.Buffer) []int32 {
		v, e := comm.View[int32](b)
		if e != nil && err == nil {
			err = e
		}
		return v
	}
	x = index{row: ints(i.Row), k: ints(i.K), counts: ints(i.Counts), offsets: ints(i.Offsets)}
	if err == nil {
		x.weight, err = comm.View[float32](i.Weight)
	}
	if err == nil {
		x.counts = x.counts[:numLocal]
	}
	return x, err
}

// numTrue returns the slots in use.
func (x *index) numTrue() int {
	n := 0
	for _, c := range x.counts {
		n += int(c)
	}
	return n
}

// span returns the slots [lo, hi) of expert e whose rows are in [row0, row1).
func (x *index) span(e int, row0, row1 int32) (lo, hi int) {
	first := int(x.offsets[e])
	rows := x.row[first : first+int(x.counts[e])]
	lo = lowerBound(rows, row0)
	return first + lo, first + lo + lowerBound(rows[lo:], row1)
}

// lowerBound returns how many of the ascending rows are below r.
func lowerBound(rows []int32, r int32) int {
	lo, hi := 0, len(rows)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); rows[mid] < r {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
