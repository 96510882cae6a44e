package ncclworld_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/dtype"
)

// caseOf is one collective. counts are rows per rank; the uniform forms use counts[0].
type caseOf struct {
	kind   comm.OpKind
	typ    dtype.DType
	counts []int
	cols   int
	gap    int // elements between rows
	reduce comm.ReduceOp
	rough  bool // values whose sums are rounded
}

func (x caseOf) String() string {
	return fmt.Sprintf("%v %v %v counts %v cols %d gap %d rough %v", x.kind, x.typ, x.reduce, x.counts, x.cols, x.gap, x.rough)
}

// sends is the rows from rank i to rank j of an alltoallv.
func (x caseOf) sends(i, j int) int { return x.counts[(i+2*j)%len(x.counts)] }

func total(n []int) (s int) {
	for _, v := range n {
		s += v
	}
	return s
}

func (x caseOf) table(i int, from bool) []int {
	n := make([]int, len(x.counts))
	for j := range n {
		if n[j] = x.sends(i, j); from {
			n[j] = x.sends(j, i)
		}
	}
	return n
}

// rows are those that rank i gives and gets.
func (x caseOf) rows(i int) (src, dst int) {
	size, n := len(x.counts), x.counts[0]
	switch x.kind {
	case comm.AllGather:
		return n, n * size
	case comm.ReduceScatter:
		return n * size, n
	case comm.AllGatherV:
		return x.counts[i], total(x.counts)
	case comm.ReduceScatterV:
		return total(x.counts), x.counts[i]
	case comm.AllToAllV:
		return total(x.table(i, false)), total(x.table(i, true))
	}
	return n, n
}

// input is what rank i gives: small integers, whose sums are exact in every type, or values between 2^-4 and 2^4.
func (x caseOf) input(i int) ([]byte, []float32) {
	rows, _ := x.rows(i)
	rng := rand.New(rand.NewPCG(uint64(i)+7, uint64(x.kind)*100+uint64(x.typ)))
	f := make([]float32, rows*x.cols)
	for k := range f {
		f[k] = float32(rng.IntN(2 + x.typ.Size()/2)) // sums of eight fit the two bits of an e5m2
		if x.rough {
			f[k] = float32(math.Exp2(8*rng.Float64()-4) * float64(1-2*rng.IntN(2)))
		}
	}
	raw := make([]byte, len(f)*x.typ.Size())
	if err := dtype.FromFloat32s(raw, f, x.typ); err != nil {
		for k := range f { // integers
			for b := range x.typ.Size() {
				raw[k*x.typ.Size()+b] = byte(int64(f[k]) >> (8 * b))
			}
		}
		return raw, f
	}
	_ = dtype.Float32s(f, raw, x.typ)
	return raw, f
}

// run calls the collective on one rank of any world and returns its result.
func (x caseOf) run(ctx context.Context, c *comm.Comm, input []byte) ([]byte, error) {
	const root = 1
	r := c.Rank()
	nsrc, ndst := x.rows(r)
	alloc := func(rows int) (b comm.Buffer, err error) {
		if b, err = comm.Alloc(c, x.typ, rows, x.cols+x.gap); err == nil {
			b = b.Columns(x.gap/2, x.gap/2+x.cols)
		}
		return b, err
	}
	src, err := alloc(nsrc)
	if err != nil {
		return nil, err
	}
	dst, err := alloc(ndst)
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = comm.Free(c, whole(src, x.gap)), comm.Free(c, whole(dst, x.gap)) }()
	if err := comm.Copy(c, comm.Stream{}, src, comm.OfBytes(input, x.typ, nsrc, x.cols)); err != nil {
		return nil, err
	}
	op := comm.Op{Kind: x.kind, Reduce: x.reduce, Peer: root, Parts: []comm.Part{{Dst: dst, Src: src}}, Send: comm.Host(x.counts)}
	switch x.kind {
	case comm.AllToAllV:
		op.Send, op.Recv = comm.Host(x.table(r, false)), comm.Host(x.table(r, true))
	case comm.Broadcast:
		op.Parts[0].Dst, dst = src, src
	}
	if err := c.Do(comm.Stream{}, &op); err != nil {
		return nil, err
	}
	if err := c.Wait(ctx, comm.Stream{}); err != nil {
		return nil, err
	}
	if x.kind == comm.Reduce && r != root {
		return nil, nil
	}
	out := make([]byte, ndst*x.cols*x.typ.Size())
	return out, comm.Copy(c, comm.Stream{}, comm.OfBytes(out, x.typ, ndst, x.cols), dst)
}

// whole is the buffer of Alloc of which b is columns.
func whole(b comm.Buffer, gap int) comm.Buffer {
	if b.Device().Kind == comm.CPU || b.Rows() == 0 {
		return comm.Buffer{}
	}
	return comm.At(b.Device(), b.Addr()-uintptr(gap/2*b.DType().Size()), b.DType(), b.Rows(), b.Cols()+gap, b.Cols()+gap)
}

// want is what rank i of a world on the CPU gets.
func (x caseOf) want(rank int) ([]byte, error) {
	w, err := local.Open(local.Config{Ranks: len(x.counts)})
	if err != nil {
		return nil, err
	}
	var out []byte
	err = w.Run(context.Background(), func(ctx context.Context, c *comm.Comm) error {
		in, _ := x.input(c.Rank())
		got, err := x.run(ctx, c, in)
		if c.Rank() == rank {
			out = got
		}
		return err
	})
	_ = w.Close(context.Background())
	return out, err
}

// near compares sums that were rounded at every hop: within P-1 roundings of the exact sum, each of the largest partial sum.
func (x caseOf) near(rank int, got []byte) (worst float64, err error) {
	first := 0
	if x.kind == comm.ReduceScatterV {
		first = total(x.counts[:rank]) * x.cols
	} else if x.kind == comm.ReduceScatter {
		first = rank * x.counts[0] * x.cols
	}
	unit := map[dtype.DType]float64{dtype.F32: 0x1p-24, dtype.BF16: 0x1p-8, dtype.F16: 0x1p-11}[x.typ] // half a unit in the last place of 1
	f := make([]float32, len(got)/x.typ.Size())
	if err := dtype.Float32s(f, got, x.typ); err != nil {
		return 0, err
	}
	inputs := make([][]float32, len(x.counts))
	for i := range inputs {
		_, inputs[i] = x.input(i)
	}
	for k := range f {
		sum, size := 0.0, 0.0
		for i := range inputs {
			v := float64(inputs[i][first+k])
			sum += v
			size += math.Abs(v)
		}
		roundings := float64(len(inputs) - 1)
		if x.reduce == comm.Avg { // NCCL multiplies by the rounded 1/P first
			sum, size, roundings = sum/float64(len(inputs)), size/float64(len(inputs)), roundings+2
		}
		bound := roundings * unit * size
		off := math.Abs(float64(f[k]) - sum)
		if off > bound || math.IsNaN(off) {
			return 0, fmt.Errorf("%v: element %d: got %v, exact %v, off by %v > %v", x, k, f[k], sum, off, bound)
		}
		worst = max(worst, off/bound*roundings)
	}
	return worst, nil
}

// cases are small: every one takes a tenth of a second between eight processes on one GPU.
func cases(size int) []caseOf {
	uniform, ragged, last := make([]int, size), make([]int, size), make([]int, size)
	for i := range size {
		uniform[i], ragged[i] = 3, []int{3, 0, 1, 6, 0, 2, 5}[i%7]
	}
	last[size-1] = 4
	var list []caseOf
	for k := comm.AllReduce; k <= comm.Reduce; k++ {
		base := caseOf{kind: k, typ: dtype.BF16, counts: uniform, cols: 5}
		list = append(list, base)
		if k == comm.AllGatherV || k == comm.ReduceScatterV || k == comm.AllToAllV {
			for _, n := range [][]int{ragged, last} {
				x := base
				x.counts = n
				list = append(list, x)
				x.gap = 4
				list = append(list, x)
			}
		} else {
			base.gap = 4
			list = append(list, base)
		}
		if k.Reduces() {
			for _, t := range []dtype.DType{dtype.F32, dtype.F16, dtype.BF16} {
				list = append(list, caseOf{kind: k, typ: t, counts: uniform, cols: 33, rough: true})
			}
		}
	}
	ragged2 := caseOf{kind: comm.ReduceScatterV, typ: dtype.F32, counts: ragged, cols: 33, rough: true}
	list = append(list, ragged2)
	for _, t := range []dtype.DType{dtype.F8E4M3, dtype.F8E5M2, dtype.I8, dtype.U8, dtype.I32, dtype.I64} {
		list = append(list, caseOf{kind: comm.AllReduce, typ: t, counts: uniform, cols: 5}, caseOf{kind: comm.AllGatherV, typ: t, counts: ragged, cols: 3})
	}
	for _, r := range []comm.ReduceOp{comm.Prod, comm.Min, comm.Max, comm.Avg} {
		list = append(list, caseOf{kind: comm.AllReduce, typ: dtype.F32, reduce: r, counts: uniform, cols: 5, rough: r == comm.Avg})
	}
	return list
}

// oracle runs the cases and compares with package comm/local.
func oracle(ctx context.Context, w *comm.World, c *comm.Comm) error {
	begin, equal, worst := time.Now(), 0, 0.0
	var slowest time.Duration
	for _, x := range cases(c.Size()) {
		in, _ := x.input(c.Rank())
		start := time.Now()
		got, err := x.run(ctx, c, in)
		if err != nil {
			return fmt.Errorf("%v: %w", x, err)
		}
		slowest = max(slowest, time.Since(start))
		if x.rough {
			off, err := x.near(c.Rank(), got)
			if err != nil && got != nil {
				return err
			}
			worst = max(worst, off)
			equal++
			continue
		}
		want, err := x.want(c.Rank())
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("rank %d: %v: got %v, want %v", c.Rank(), x, got, want)
		}
		equal++
	}
	fmt.Printf("rank %d: %d cases equal comm/local or are within P-1 roundings (worst %.2f of %d) in %v, slowest %v\n", c.Rank(), equal, worst,
		c.Size()-1, time.Since(begin).Round(time.Millisecond), slowest.Round(time.Millisecond))
	fmt.Println("cases equal comm/local")
	return deviceCounts(c)
}

// deviceCounts are refused on every rank, before anything is enqueued.
func deviceCounts(c *comm.Comm) error {
	b, err := comm.Alloc(c, dtype.I32, c.Size()*2, c.Size())
	if err != nil {
		return err
	}
	err = c.AllGatherV(comm.Stream{}, comm.OnDevice(b.Slice(0, 1).Columns(0, 1), b.Slice(1, 2), 1), comm.Part{Dst: b.Slice(2, 2+c.Size()), Src: b.Slice(0, 1)})
	fmt.Println("counts on the device:", err)
	return nil
}

// splitJob makes two groups in reversed order and adds in each.
func splitJob(ctx context.Context, w *comm.World, c *comm.Comm) error {
	sub, err := c.Split(ctx, c.Rank()%2, -c.Rank())
	if err != nil {
		return err
	}
	want := (c.Size() - 1 - c.Rank() + c.Rank()%2) / 2
	if sub.Size() != c.Size()/2 || sub.Rank() != want {
		return fmt.Errorf("rank %d is %d of %d in its group, not %d of %d", c.Rank(), sub.Rank(), sub.Size(), want, c.Size()/2)
	}
	x := caseOf{kind: comm.AllReduce, typ: dtype.F32, counts: []int{3, 3}, cols: 4}
	in, _ := x.input(sub.Rank())
	got, err := x.run(ctx, sub, in)
	if err != nil {
		return err
	}
	wantBytes, err := x.want(sub.Rank())
	if err == nil && !bytes.Equal(got, wantBytes) {
		err = fmt.Errorf("rank %d: got %v in a group, want %v", c.Rank(), got, wantBytes)
	}
	if err != nil {
		return err
	}
	none, err := c.Split(ctx, -1, 0)
	if none != nil || err != nil {
		return fmt.Errorf("a negative color joins %v, %w", none, err)
	}
	return sub.Close(ctx)
}
