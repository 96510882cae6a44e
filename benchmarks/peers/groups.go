package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/dtype"
)

// group is the cells that one process of a peer runs: one operation on one number of ranks, in all sizes.
type group struct {
	op    *suite.Operation
	ranks int
	load  suite.Load
	sizes []int64
}

// elements is the size of every element: all cells are float.
var elements = dtype.F32

// over reports whether ranks share CPUs.
func over(ranks int) bool { return ranks > runtime.NumCPU() }

// groups checks the flags and lists what is to be measured.
func (f *flags) groups() ([]group, error) {
	if f.Rounds < 1 || f.Budget <= 0 || len(f.Lib) == 0 {
		return nil, fmt.Errorf("rounds %d, budget %v and %d libraries must be at least one", f.Rounds, f.Budget, len(f.Lib))
	}
	for _, lib := range f.Lib {
		if !slices.Contains([]string{"openmpi", "mpich"}, lib) {
			return nil, fmt.Errorf("--lib %s: use openmpi or mpich", lib)
		}
	}
	var out []group
	for _, ranks := range f.Ranks {
		if ranks < 2 || ranks > 64 {
			return nil, fmt.Errorf("--ranks %d is not in [2, 64]", ranks)
		}
		texts := f.Sizes
		if over(ranks) {
			texts = f.Over
		}
		sizes, err := parseSizes(texts)
		if err != nil {
			return nil, err
		}
		for _, name := range f.Op {
			op, err := suite.Find(name)
			if err != nil {
				return nil, err
			}
			g := group{op: op, ranks: ranks, sizes: sizes}
			if op.Ragged {
				g.load.Skew = f.Skew
				if f.Skew == 0 {
					g.load.Skew = 1.25 / float64(ranks)
				}
			}
			if err := g.load.Validate(); err != nil {
				return nil, err
			}
			if name == "barrier" {
				g.sizes = []int64{0}
			}
			out = append(out, g)
		}
	}
	return out, nil
}

func parseSizes(texts []string) ([]int64, error) {
	var sizes []int64
	for _, text := range texts {
		var n suite.Size
		if err := n.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
		sizes = append(sizes, int64(n))
	}
	return sizes, nil
}

// shape is a cell in elements.
func (g group) shape(size int64) suite.Shape {
	return g.op.Shape(int(size)/elements.Size(), g.ranks, elements.Size(), g.load)
}
