package suite

import (
	"fmt"
	"strings"

	"github.com/weftgo/weft/comm"
)

// Operation is one row of the table: all that the benchmark knows of a collective.
type Operation struct {
	Name       string
	Factor     func(ranks int) float64 // busbw = algbw x Factor: the share of the bytes that must cross links
	Reduces    bool                    // has a reduction
	Rooted     bool                    // has a root
	Ragged     bool                    // takes a Load
	OutOfPlace bool                    // can have separate buffers
	InPlace    bool                    // can have its result where its input was
	MinRanks   int
	Shape      func(n, ranks, elementBytes int, l Load) Shape // what a size of n elements means

	run   func(c *comm.Comm, x *call) error
	wants func(x *call, p *Pattern) []segment // what must be in dst
}

// Operations is the table, in the order in which "all" runs.
var Operations = []Operation{
	{Name: "all_reduce", Factor: twice, Reduces: true, OutOfPlace: true, InPlace: true, Shape: uniform,
		run:   func(c *comm.Comm, x *call) error { return c.AllReduce(x.stream, x.dst, x.src, x.redop) },
		wants: func(x *call, p *Pattern) []segment { return one(p.Reduced, 0, x.shape.Count) }},
	{Name: "all_gather", Factor: others, OutOfPlace: true, InPlace: true, Shape: gathered,
		run:   func(c *comm.Comm, x *call) error { return c.AllGather(x.stream, x.dst, x.src) },
		wants: wantGathered},
	{Name: "all_gatherv", Factor: others, Ragged: true, OutOfPlace: true, InPlace: true, Shape: gatheredV,
		run:   func(c *comm.Comm, x *call) error { return c.AllGatherV(x.stream, x.counts, x.parts[:]...) },
		wants: wantGathered},
	{Name: "reduce_scatter", Factor: others, Reduces: true, OutOfPlace: true, InPlace: true, Shape: scattered,
		run:   func(c *comm.Comm, x *call) error { return c.ReduceScatter(x.stream, x.dst, x.src, x.redop) },
		wants: wantScattered},
	{Name: "reduce_scatterv", Factor: others, Reduces: true, Ragged: true, OutOfPlace: true, InPlace: true, Shape: scatteredV,
		run:   func(c *comm.Comm, x *call) error { return c.ReduceScatterV(x.stream, x.counts, x.redop, x.parts[:]...) },
		wants: wantScattered},
	{Name: "alltoall", Factor: others, OutOfPlace: true, Shape: exchanged, run: runExchange, wants: wantExchanged},
	{Name: "alltoallv", Factor: others, Ragged: true, OutOfPlace: true, Shape: exchangedV, run: runExchange, wants: wantExchanged},
	{Name: "broadcast", Factor: same, Rooted: true, InPlace: true, Shape: uniform,
		run:   func(c *comm.Comm, x *call) error { return c.Broadcast(x.stream, x.dst, x.root) },
		wants: func(x *call, p *Pattern) []segment { return one(p.Input(x.root), 0, x.shape.Count) }},
	{Name: "reduce", Factor: same, Reduces: true, Rooted: true, OutOfPlace: true, InPlace: true, Shape: uniform,
		run: func(c *comm.Comm, x *call) error { return c.Reduce(x.stream, x.dst, x.src, x.redop, x.root) },
		wants: func(x *call, p *Pattern) []segment {
			if x.rank != x.root {
				return nil
			}
			return one(p.Reduced, 0, x.shape.Count)
		}},
	{Name: "sendrecv", Factor: same, OutOfPlace: true, MinRanks: 2, Shape: uniform, run: runRing,
		wants: func(x *call, p *Pattern) []segment {
			return one(p.Input((x.rank+x.size-1)%x.size), 0, x.shape.Count)
		}},
	{Name: "barrier", Factor: same, OutOfPlace: true, Shape: nothing,
		run:   func(c *comm.Comm, x *call) error { return c.Barrier(x.stream) },
		wants: func(*call, *Pattern) []segment { return nil }},
}

// The factors of nccl-tests: how many times the bytes of algbw the busiest link must carry, for n ranks.
func twice(n int) float64  { return 2 * float64(n-1) / float64(n) }
func others(n int) float64 { return float64(n-1) / float64(n) }
func same(int) float64     { return 1 }

// Find returns the operation of a name.
func Find(name string) (*Operation, error) {
	for i := range Operations {
		if Operations[i].Name == name {
			return &Operations[i], nil
		}
	}
	return nil, fmt.Errorf("no operation %q; there are %s", name, strings.Join(Names(), ", "))
}

// Names lists the table.
func Names() []string {
	var names []string
	for _, op := range Operations {
		names = append(names, op.Name)
	}
	return names
}

// runRing sends to the next rank and receives from the one before. On the CPU a send returns when it was received, so even
// ranks send first and odd ones receive first.
func runRing(c *comm.Comm, x *call) error {
	next, last := (x.rank+1)%x.size, (x.rank+x.size-1)%x.size
	if x.rank%2 == 0 {
		if err := c.Send(x.stream, x.src, next); err != nil {
			return err
		}
		return c.Recv(x.stream, x.dst, last)
	}
	if err := c.Recv(x.stream, x.dst, last); err != nil {
		return err
	}
	return c.Send(x.stream, x.src, next)
}

func runExchange(c *comm.Comm, x *call) error {
	return c.AllToAllV(x.stream, x.send, x.recv, x.parts[:]...)
}

func wantGathered(x *call, p *Pattern) []segment {
	var want []segment
	at := 0
	for r, n := range x.shape.Counts {
		want = append(want, segment{at: at, n: n, values: p.Input(r)})
		at += n
	}
	return want
}

func wantScattered(x *call, p *Pattern) []segment {
	return one(p.Reduced, before(x.shape.Counts, x.rank), x.shape.Counts[x.rank])
}

func wantExchanged(x *call, p *Pattern) []segment {
	var want []segment
	at := 0
	for i, row := range x.shape.Matrix {
		want = append(want, segment{at: at, n: row[x.rank], values: p.Input(i), start: before(row, x.rank)})
		at += row[x.rank]
	}
	return want
}

// one is a result that is n values from start of one stream.
func one(values Stream, start, n int) []segment {
	return []segment{{n: n, values: values, start: start}}
}
