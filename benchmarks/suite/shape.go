package suite

import (
	"fmt"
	"math"
)

// Load says how a ragged operation spreads its elements over the ranks.
type Load struct {
	Skew  float64 // rank 0 owns this share of all elements, in (0, 1]; 0 means an even spread
	Zeros bool    // odd ranks own nothing
}

// Validate reports a share that is none.
func (l Load) Validate() error {
	if !(l.Skew >= 0 && l.Skew <= 1) {
		return fmt.Errorf("skew %v is not in [0, 1]: it is the share that one rank owns", l.Skew)
	}
	return nil
}

// Shares splits n elements over ranks. They add up to n; what does not divide goes to the first ranks.
func (l Load) Shares(n, ranks int) []int {
	counts := make([]int, ranks)
	first, rest := 0, n
	var others []int
	for r := range ranks {
		if !l.Zeros || r%2 == 0 {
			others = append(others, r)
		}
	}
	if l.Skew > 0 {
		first = int(math.Round(l.Skew * float64(n)))
		if others = others[1:]; len(others) == 0 {
			first = n
		}
		rest = n - first
	}
	for i, r := range others {
		counts[r] = rest / len(others)
		if i < rest%len(others) {
			counts[r]++
		}
	}
	counts[0] += first
	return counts
}

// Shape is what one size of an operation means, in elements.
type Shape struct {
	Count      int     // the count column of nccl-tests: the elements of one call of one rank
	Counts     []int   // of the gathering and scattering forms: elements of each rank
	Matrix     [][]int // of alltoall(v): Matrix[i][j] elements go from rank i to rank j
	Send, Recv []int   // elements in the buffers of each rank
	Algorithm  int     // elements that algbw counts
}

// Size is the size column: the larger of the largest send and receive buffers, in elements.
func (s Shape) Size() int {
	size := 0
	for r := range s.Send {
		size = max(size, s.Send[r], s.Recv[r])
	}
	return size
}

// uniform gives every rank n elements in and out.
func uniform(n, ranks, _ int, _ Load) Shape {
	return Shape{Count: n, Send: fill(n, ranks), Recv: fill(n, ranks), Algorithm: n}
}

// nothing moves no elements.
func nothing(_, ranks, _ int, _ Load) Shape {
	return Shape{Send: fill(0, ranks), Recv: fill(0, ranks)}
}

// even splits n over the ranks, rounded down to 16 bytes each as nccl-tests does.
func even(n, ranks, elementBytes int) int {
	grain := max(1, 16/elementBytes)
	return n / ranks / grain * grain
}

func gathered(n, ranks, elementBytes int, _ Load) Shape {
	each := even(n, ranks, elementBytes)
	return Shape{Count: each, Counts: fill(each, ranks), Send: fill(each, ranks), Recv: fill(each*ranks, ranks),
		Algorithm: each * ranks}
}

func gatheredV(n, ranks, _ int, l Load) Shape {
	counts := l.Shares(n, ranks)
	return Shape{Count: n, Counts: counts, Send: counts, Recv: fill(n, ranks), Algorithm: n}
}

func scattered(n, ranks, elementBytes int, l Load) Shape {
	return gathered(n, ranks, elementBytes, l).reverse()
}

func scatteredV(n, ranks, elementBytes int, l Load) Shape {
	return gatheredV(n, ranks, elementBytes, l).reverse()
}

// reverse swaps what goes in and what comes out.
func (s Shape) reverse() Shape {
	s.Send, s.Recv = s.Recv, s.Send
	return s
}

func exchanged(n, ranks, elementBytes int, _ Load) Shape {
	each := even(n, ranks, elementBytes)
	return matrixShape(each, fill(each, ranks))
}

// exchangedV lets every rank send n elements, of which each destination gets its share.
func exchangedV(n, ranks, _ int, l Load) Shape {
	return matrixShape(n, l.Shares(n, ranks))
}

// matrixShape is the exchange in which every rank sends row[j] elements to rank j.
func matrixShape(count int, row []int) Shape {
	s := Shape{Count: count}
	for i := range row {
		s.Matrix = append(s.Matrix, row)
		s.Send = append(s.Send, before(row, len(row)))
		s.Recv = append(s.Recv, len(row)*row[i])
		s.Algorithm = max(s.Algorithm, s.Send[i], s.Recv[i])
	}
	return s
}

// before adds up the first i counts.
func before(counts []int, i int) int {
	sum := 0
	for _, n := range counts[:i] {
		sum += n
	}
	return sum
}

func fill(n, ranks int) []int {
	out := make([]int, ranks)
	for i := range out {
		out[i] = n
	}
	return out
}
