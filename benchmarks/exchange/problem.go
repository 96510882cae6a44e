package exchange

import (
	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
)

// Bounds of the whole numbers in the check: a sum over topK experts is at most topK times their product.
const (
	maxValue  = 7
	maxWeight = 2
	maxFactor = 2
)

// problem is the tokens and choices of all ranks.
type problem struct {
	Setup
	ids     [][]int32   // [rank][tokens x topK]
	weights [][]float32 // [rank][tokens x topK]
}

func newProblem(s Setup) *problem {
	p := &problem{Setup: s}
	for r := range s.Tokens {
		ids := s.choices(r)
		weights := make([]float32, len(ids))
		for i := range weights {
			weights[i] = float32(1 + hash(uint64(r), uint64(i), 1)%maxWeight)
		}
		p.ids, p.weights = append(p.ids, ids), append(p.weights, weights)
	}
	return p
}

// value is element j of a token. The first of each 128 is 7, the largest: an fp8 row then has the scale 1/64 and is exact.
func (p *problem) value(rank, token, j int) float32 {
	if j%ep.ScaleGroup == 0 {
		return maxValue
	}
	return float32(hash(p.Seed^uint64(rank), uint64(token), uint64(j)) % 4)
}

// factor is what the stand-in for an expert multiplies by.
func factor(expert int32) float32 { return float32(1 + expert%maxFactor) }

// rows makes the tokens of a rank, [tokens, hidden].
func (p *problem) rows(rank int) []float32 {
	x := make([]float32, p.Tokens[rank]*p.Hidden)
	for i := range x {
		x[i] = p.value(rank, i/p.Hidden, i%p.Hidden)
	}
	return x
}

// source is where a received row came from; rank -1 is a gap.
type source struct{ rank, token int }

// arrivals lists what rank me must receive, in order: all tokens when everything is gathered, else those with an expert there.
func (p *problem) arrivals(me int, everything bool) []source {
	place := p.placement()
	var list []source
	gaps := func(end int) {
		for p.LowLatency && len(list) < end*p.config().MaxTokensPerRank { // each rank's rows begin at a fixed one
			list = append(list, source{rank: -1})
		}
	}
	for r, ids := range p.ids {
		gaps(r)
		for t := range p.Tokens[r] {
			here := everything
			for _, e := range ids[t*p.TopK : (t+1)*p.TopK] {
				owner, _ := place.Owner(int(e))
				here = here || owner == me
			}
			if here {
				list = append(list, source{r, t})
			}
		}
	}
	gaps(len(p.ids))
	return list
}

// wrongRows counts the elements of received rows that are not their token's, and slots of the index that name a wrong choice.
func (p *problem) wrongRows(got *ep.Received, me int, everything bool) (wrong int64) {
	list := p.arrivals(me, everything)
	if rows := got.X.Rows(); rows != len(list) {
		wrong += int64(max(rows-len(list), len(list)-rows) * p.Hidden)
		list = list[:min(rows, len(list))]
	}
	row := make([]float32, p.Hidden)
	for i, from := range list {
		if from.rank < 0 {
			continue
		}
		if err := dtype.Float32s(row, got.X.RowBytes(i), got.X.DType()); err != nil {
			return wrong + int64(p.Hidden)
		}
		for j, v := range row {
			if p.FP8 {
				v *= comm.Row[float32](got.Scales, i)[j/ep.ScaleGroup]
			}
			if v != p.value(from.rank, from.token, j) {
				wrong++
			}
		}
	}
	return wrong + p.wrongSlots(got, list, me)
}

// wrongSlots counts what the index has wrong, missing or too much.
func (p *problem) wrongSlots(got *ep.Received, list []source, me int) (wrong int64) {
	place := p.placement()
	missing := map[[3]int]bool{} // the (rank, token, k) that must be somewhere
	for _, from := range list {
		for k := range p.TopK {
			if from.rank < 0 {
				continue
			}
			if owner, _ := place.Owner(int(p.ids[from.rank][from.token*p.TopK+k])); owner == me {
				missing[[3]int{from.rank, from.token, k}] = true
			}
		}
	}
	p.eachSlot(got, func(expert, row, k int, weight float32) {
		from := list[row]
		at := from.token*p.TopK + k
		key := [3]int{from.rank, from.token, k}
		if !missing[key] || int(p.ids[from.rank][at]) != place.LogicalOf(me, expert) || p.weights[from.rank][at] != weight {
			wrong++
		}
		delete(missing, key)
	})
	return wrong + int64(len(missing))
}

// eachSlot visits the slots of the index that are not padding.
func (p *problem) eachSlot(got *ep.Received, fn func(expert, row, k int, weight float32)) {
	rows, ks, weights := flat[int32](got.Index.Row), flat[int32](got.Index.K), flat[float32](got.Index.Weight)
	offsets, counts := flat[int32](got.Index.Offsets), flat[int32](got.Index.Counts)
	for e := range got.Index.NumLocalExperts() {
		for s := offsets[e]; s < offsets[e]+counts[e]; s++ {
			fn(e, int(rows[s]), int(ks[s]), weights[s])
		}
	}
}

func flat[T dtype.Element](b comm.Buffer) []T {
	v, err := comm.View[T](b)
	if err != nil {
		panic(err) // the index is made of contiguous CPU buffers
	}
	return v
}

// experts stands in for a model's: it fills y [numRows, hidden] with the weighted sum over this rank's experts of factor x row.
func (p *problem) experts(got *ep.Received, me int, everything bool) error {
	list, place := p.arrivals(me, everything), p.placement()
	scale := make([]float32, len(list))
	p.eachSlot(got, func(expert, row, _ int, weight float32) {
		scale[row] += weight * factor(int32(place.LogicalOf(me, expert)))
	})
	y := make([]float32, p.Hidden)
	for i, from := range list {
		if from.rank < 0 {
			continue
		}
		for j := range y {
			y[j] = scale[i] * p.value(from.rank, from.token, j)
		}
		if err := dtype.FromFloat32s(got.Y.RowBytes(i), y, p.Type); err != nil {
			return err
		}
	}
	return nil
}

// wrongOut counts the elements of out that are not the weighted sum over the token's experts.
func (p *problem) wrongOut(out comm.Buffer, me int) (wrong int64) {
	row := make([]float32, p.Hidden)
	for t := range p.Tokens[me] {
		scale := float32(0)
		for k := range p.TopK {
			at := t*p.TopK + k
			scale += p.weights[me][at] * factor(p.ids[me][at])
		}
		if err := dtype.Float32s(row, out.RowBytes(t), p.Type); err != nil {
			return wrong + int64(p.Hidden)
		}
		for j, v := range row {
			if v != scale*p.value(me, t, j) {
				wrong++
			}
		}
	}
	return wrong
}

// hash mixes three numbers into one.
func hash(a, b, c uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 ^ b*0xbf58476d1ce4e5b9 ^ c*0x94d049bb133111eb
	x ^= x >> 31
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
