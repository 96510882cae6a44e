package exchange

import (
	"context"

	"github.com/weftgo/weft/benchmarks/suite"
	"github.com/weftgo/weft/comm"
)

// Operation is one row of the table: what is timed, and the bytes that one (token, rank) copy moves.
type Operation struct {
	Name      string
	CopyBytes func(s Setup) int

	measure measurement
}

// measurement times one or more operations of a cell.
type measurement int

const (
	exchanges measurement = iota // dispatch and combine, by turns
	layers
)

// Operations is the table, in the order in which "all" runs.
var Operations = []Operation{
	{Name: "dispatch", CopyBytes: Setup.dispatchBytes, measure: exchanges},
	{Name: "combine", CopyBytes: Setup.combineBytes, measure: exchanges},
	{Name: "moe_layer", CopyBytes: func(s Setup) int { return s.dispatchBytes() + s.combineBytes() }, measure: layers},
}

// Names lists the table.
func Names() []string {
	var names []string
	for _, op := range Operations {
		names = append(names, op.Name)
	}
	return names
}

// Measure measures the operations of names in one cell, in the order of the table.
func Measure(ctx context.Context, w *comm.World, s Setup, names []string, t suite.Timing, checks int) ([]Result, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	measured := map[measurement]bool{}
	var results []Result
	for _, op := range Operations {
		if !wanted[op.Name] || measured[op.measure] {
			continue
		}
		measured[op.measure] = true
		if op.measure == layers {
			r, err := Layer(ctx, w, s, t, checks)
			if err != nil {
				return nil, err
			}
			results = append(results, r)
			continue
		}
		dispatch, combine, err := Exchange(ctx, w, s, t, checks)
		if err != nil {
			return nil, err
		}
		for _, r := range []Result{dispatch, combine} {
			if wanted[r.Op] {
				results = append(results, r)
			}
		}
	}
	return results, nil
}

// find returns a row of the table.
func find(name string) Operation {
	for _, op := range Operations {
		if op.Name == name {
			return op
		}
	}
	panic("exchange: no operation " + name)
}
