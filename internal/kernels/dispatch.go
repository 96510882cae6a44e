package kernels

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/weftgo/weft/cuda"
	"github.com/weftgo/weft/internal/envknob"
	"github.com/weftgo/weft/internal/nvrtc"
)

// Flags of DispatchArgs.
const (
	Expanded  = 1 << iota // one copy for each (token, expert), in the order of slots
	Inverse               // write Bank.Slot too
	Invariant             // lists of what comes back are in k order
	Clip                  // rows beyond MaxRecv do not go; else nothing goes
	Refuse                // this rank's call was refused on the host
	Terms                 // write Bank.Terms
)

// Limits of the kernels for dispatch and combine.
const (
	MaxTopK     = 32
	MaxPhysical = 4096
	NumStats    = 8  // counters before those of each local expert
	NumStamps   = 16 // words behind the counters, for builds that look for time
)

// Experts is where experts live: a table of int32 on the device, start[NumExperts+1], replicas[NumPhysical]; an expert
// without a place has no replica. Experts have
// global numbers in the order of (rank, local expert); the first More ranks own Per+1, the others Per.
type Experts struct {
	Table                                                                     uint64
	NumExperts, NumPhysical, NumRanks, Rank, Plain, TopK, NumLocal, Alignment uint32
	Per, More                                                                 uint32
	InversePer, InverseMore, InverseTopK, _                                   uint32 // Reciprocal of Per, Per+1, TopK
}

// Reciprocal is 2^32 / n rounded up, 0 for n = 1: with it kernels divide small numbers by a multiplication.
func Reciprocal(n int) uint32 {
	if n < 1 {
		return 0
	}
	return uint32((1<<32 + uint64(n) - 1) / uint64(n))
}

// Exchange is what stays the same for an exchanger's life.
type Exchange struct {
	Experts                         Experts
	Peers                           [MaxRanks]uint64 // each rank's region
	Tally                           uint64           // offset there: TallyBytes
	Scratch                         uint64           // ScratchBytes
	Stats                           uint64           // uint64 [NumStats + NumLocal]
	Hidden, MaxTokens, MaxRecv, Fan uint32
}

// TallyBytes is the lines in which all ranks tell a rank their choices per expert.
func TallyBytes(ranks, physical int) int { return 2 * ranks * ((physical + 1) / 2) * 16 }

// ScratchBytes is the private memory of dispatch for up to blocks blocks.
func ScratchBytes(ranks, physical, maxTokens, blocks int) int {
	return 4 * (8 + MaxRanks + (maxTokens+7)/8*8 + blocks*(physical+ranks+1))
}

// Bank is one result's memory. The first six are offsets in each rank's region, the others this rank's addresses.
type Bank struct {
	X, Scales, Row, K, Weight, Slot              uint64
	Counts, Offsets, NumRows, Dropped, NumTokens uint64
	Terms, Rows                                  uint64 // TermBytes [MaxTokens, TopK], SentBytes [MaxTokens, Fan]
}

// Bytes of an entry of Bank.Terms and Bank.Rows.
const (
	TermBytes = 16
	SentBytes = 8
)

// DispatchArgs are a dispatch's parameters.
type DispatchArgs struct {
	Meet                         Args
	Exchange                     Exchange
	Bank                         Bank
	Src, IDs, Weights, NumTokens uint64
	SrcStride                    int64 // bytes

	Tokens, RowBytes, DType, FP8, Flags, ScaleBytes uint32 // FP8: narrow rows, and make ScaleBytes of scales

	Bulk        uint64 // set by Dispatch
	Scales      uint64 // the caller's, of ScaleBytes a row, without FP8
	ScaleStride int64  // bytes
	_           uint64
}

// CombineArgs are a combine's parameters. Part 0 of the entry is this rank's rows.
type CombineArgs struct {
	Meet                              Args
	Terms, Rows, NumTokens            uint64
	Out                               uint64
	Bias                              [2]uint64
	OutStride                         int64 // bytes
	BiasStride                        [2]int64
	NumBias                           uint64
	Mode, TopK, Fan, DType, Hidden, _ uint32
	_                                 [2]uint32
}

// Modes of CombineArgs.
const (
	SumPartials  = iota // one row of each rank, in rank order
	SumExperts          // expert rows, as if each rank had made a partial row
	SumInvariant        // expert rows in k order
)

// IndexArgs are the parameters of both kernels that index gathered rows.
type IndexArgs struct {
	Experts                                  Experts
	IDs, Weights, RowsOf                     uint64
	Row, K, Weight, Slot                     uint64
	Counts, Offsets, NumRows, Dropped, Stats uint64
	Ticket, Scratch                          uint64
	MaxRows, _                               uint32
}

// QuantArgs are the parameters of weft_quantise.
type QuantArgs struct {
	Src, Q, Scales, NumTokens uint64
	SrcStride                 int64
	Rows, Hidden, DType, _    uint32
}

// PartialArgs are the parameters of weft_partials.
type PartialArgs struct {
	Dst, Y, Slot, Weight, NumRows            uint64
	DstStride, YStride                       int64
	TopK, Hidden, DType, Wide, Copy, MaxRows uint32
}

// BiasArgs are the parameters of weft_bias.
type BiasArgs struct {
	Sums, Out                         uint64
	Bias                              [2]uint64
	NumTokens                         uint64
	OutStride                         int64
	BiasStride                        [2]int64
	NumBias, Hidden, DType, MaxTokens uint32
}

// ExpandArgs are the parameters of weft_expand.
type ExpandArgs struct {
	Dst, Src, Row, Offsets, Bytes uint64
	NumLocal, _                   uint32
}

// stamps compiles a dispatch that notes when it comes to its phases.
var stamps = envknob.Register("WEFT_KERNEL_STAMPS", "1: dispatch notes its phases in cycles behind its counters", "0", "1")

// few chooses the kernel for few tokens.
var few = envknob.Register("WEFT_DISPATCH_FEW", "0: dispatches of at most 32 rows take the general kernel too", "0", "1")

// exchangeFiles are the parts of the second translation unit.
var exchangeFiles = []string{"ptx.cuh", "protocol.cuh", "meeting.cuh", "numbers.cuh", "copy.cuh", "index.cu", "quant.cu", "route.cuh", "push.cuh", "push_fp8.cuh", "dispatch.cu", "few.cu", "combine.cu", "partials.cu", "rows.cu",
	"lowlatency.cuh", "lowindex.cuh", "lowdispatch.cu", "lowcombine.cu"}

// ExchangeProgram is the source of dispatch and combine for an architecture.
func ExchangeProgram(arch string) nvrtc.Program {
	p := Program(arch)
	var b strings.Builder
	for _, name := range exchangeFiles {
		b.WriteString(text(name) + "\n")
	}
	p.Name, p.Source = "exchange.cu", b.String()
	if ganged() {
		p.Source = gangSource(p.Source)
	}
	if v, _ := stamps.Get(); v == "1" {
		p.Options = append(p.Options, "-DWEFT_STAMPS")
	}
	return p
}

// ExchangeSet is the kernels of dispatch and combine, loaded on one device.
type ExchangeSet struct {
	gang                                                                                                                     *gang
	module                                                                                                                   *cuda.Module
	numSMs, shared                                                                                                           int
	sm90                                                                                                                     bool // bulk copies work, and kernels may overlap with the end of the one in front
	dispatch, dispatchFew, combine, combineExperts, indexCount, indexPlace, quantise, partials, addBias, expand, gather, add *cuda.Function
	lowDispatch, lowCombine                                                                                                  *cuda.Function
}

// loadExchange loads the kernels of image, which is ExchangeProgram compiled for the device.
func loadExchange(dev *cuda.Device, image []byte, g *gang) (*ExchangeSet, error) {
	m, err := dev.LoadModule(image)
	if err != nil {
		return nil, err
	}
	s := &ExchangeSet{module: m, gang: g, numSMs: dev.Info().SMs, sm90: dev.Info().Major >= 9}
	if err := s.functions(dev.Info().SharedBytes); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return s, nil
}

func (s *ExchangeSet) functions(shared int) error {
	for _, f := range []struct {
		name   string
		fn     **cuda.Function
		params uintptr
		shared bool
	}{
		{"weft_dispatch", &s.dispatch, unsafe.Sizeof(DispatchArgs{}), true},
		{"weft_dispatch_few", &s.dispatchFew, unsafe.Sizeof(DispatchArgs{}), false},
		{"weft_combine", &s.combine, unsafe.Sizeof(CombineArgs{}), false},
		{"weft_combine_experts", &s.combineExperts, unsafe.Sizeof(CombineArgs{}), false},
		{"weft_index_count", &s.indexCount, unsafe.Sizeof(IndexArgs{}), true},
		{"weft_index_place", &s.indexPlace, unsafe.Sizeof(IndexArgs{}), true},
		{"weft_quantise", &s.quantise, unsafe.Sizeof(QuantArgs{}), false},
		{"weft_partials", &s.partials, unsafe.Sizeof(PartialArgs{}), false},
		{"weft_bias", &s.addBias, unsafe.Sizeof(BiasArgs{}), false},
		{"weft_expand", &s.expand, unsafe.Sizeof(ExpandArgs{}), false},
		{"weft_gather", &s.gather, unsafe.Sizeof(GatherArgs{}), false},
		{"weft_add", &s.add, unsafe.Sizeof(AddArgs{}), false},
		{"weft_low_dispatch", &s.lowDispatch, unsafe.Sizeof(LowDispatchArgs{}), true},
		{"weft_low_combine", &s.lowCombine, unsafe.Sizeof(LowCombineArgs{}), false},
	} {
		fn, err := s.module.Function(f.name)
		if err != nil {
			return err
		}
		if n, err := fn.ParamBytes(); err == nil && n != int(f.params) && s.gang == nil {
			return fmt.Errorf("kernels: %s takes %d bytes of parameters, weft packs %d", f.name, n, f.params)
		}
		if f.shared {
			static, err := fn.Attribute(cuda.FuncStaticShared)
			if err != nil {
				return err
			}
			if err := fn.SetMaxShared(shared - static); err != nil {
				return err
			}
			if f.fn == &s.dispatch {
				s.shared = shared - static
			}
		}
		*f.fn = fn
	}
	if s.gang != nil {
		s.gang.short[s.dispatchFew], s.gang.grown = true, s.dispatch
	}
	return nil
}

// Close unloads the kernels. None may be running.
func (s *ExchangeSet) Close() error {
	if s == nil {
		return nil
	}
	return s.module.Close()
}

// fewTokens is dispatch.cu's SOLO: rows of so few tokens go through registers.
const fewTokens = 256

// run launches so that the kernel's start overlaps with the end of the one in front.
func run[P any](s *ExchangeSet, st *cuda.Stream, fn *cuda.Function, l *cuda.Launch, a *P, meet *Args) error {
	if s.sm90 {
		l.Overlap = 1
	}
	return enqueue(s.gang, st, fn, l, a, meet)
}

// bulkBytes is dispatch.cu's BULK_BYTES.
const bulkBytes = 4 * 5 * 8192

// private is the words of all warps' counters, as index.cu has them.
const private = 8192

func countingWarps(columns int) int { return max(1, min(12, private/max(1, columns))) }

// isFew reports whether weft_dispatch_few will do. Ranks need not agree.
func isFew(a *DispatchArgs) bool {
	x := &a.Exchange.Experts // few.cu's FEW_TOKENS, FEW_CHOICES, FEW_EXPERTS
	return a.Tokens <= 32 && a.Tokens*x.TopK <= 256 && x.NumPhysical <= 512 && a.Flags&Clip == 0 && a.Tokens*a.Exchange.Fan <= fewSent
}

// fewSent is route.cuh's FEW_SENT.
const fewSent = 512

// Dispatch launches on blocks blocks. Ranks may take different numbers.
func (s *ExchangeSet) Dispatch(st *cuda.Stream, a *DispatchArgs, blocks int) error {
	x := &a.Exchange.Experts
	if v, _ := few.Get(); v != "0" && isFew(a) {
		l := cuda.Linear(blocks, Threads)
		a.Bulk = 0
		return run(s, st, s.dispatchFew, &l, a, &a.Meet)
	}
	l := cuda.Linear(blocks, Threads)
	l.Shared = dispatchShared(x)
	a.Bulk = 0
	if at := (l.Shared + 127) / 128 * 128; s.sm90 && int(at)+bulkBytes <= s.shared && a.Tokens > fewTokens && !(a.FP8 != 0 && Trial.NarrowByUnits) {
		a.Bulk = uint64(at)
		l.Shared = at + bulkBytes
	}
	return run(s, st, s.dispatch, &l, a, &a.Meet)
}

// dispatchShared is the bytes of dispatch's tables in shared memory.
func dispatchShared(x *Experts) uint32 {
	physical, ranks := int(x.NumPhysical), int(x.NumRanks)
	return uint32(4 * (countingWarps(physical)*(ranks+1+physical) + physical + ranks + 1 + 2*physical))
}

// expertThreads is combine.cu's EXPERT_THREADS.
const expertThreads = 768

// Combine launches on blocks blocks. Ranks may take different numbers.
func (s *ExchangeSet) Combine(st *cuda.Stream, a *CombineArgs, blocks int) error {
	l := cuda.Linear(blocks, Threads)
	if a.Mode == SumPartials {
		return run(s, st, s.combine, &l, a, &a.Meet)
	}
	l.Block[0] = expertThreads
	return run(s, st, s.combineExperts, &l, a, &a.Meet)
}

// IndexBlocks is the blocks of Index for up to maxRows rows.
func IndexBlocks(maxRows, topK int) int { return max(1, min(64, maxRows*topK/4096)) }

// IndexScratch is the bytes of IndexArgs.Scratch.
func IndexScratch(maxRows, topK, numLocal int) int {
	return IndexBlocks(maxRows, topK) * (numLocal + 1) * 4
}

// Index launches both kernels that index gathered rows. Here and below, most bounds the blocks of a kernel; 0: its work and the
// multiprocessors alone do.
func (s *ExchangeSet) Index(st *cuda.Stream, a *IndexArgs, most int) error {
	width := int(a.Experts.NumLocal) + 1
	blocks := IndexBlocks(int(a.MaxRows), int(a.Experts.TopK))
	if most > 0 {
		blocks = min(blocks, most)
	}
	l := cuda.Linear(blocks, Threads)
	l.Shared = uint32((countingWarps(width) + 1) * width * 4)
	return errors.Join(run(s, st, s.indexCount, &l, a, nil), run(s, st, s.indexPlace, &l, a, nil))
}

// over returns a grid for work items of a warp each, of at most so many blocks; 0: one for each multiprocessor.
func (s *ExchangeSet) over(warps, most int) cuda.Launch {
	const perBlock = Threads / 32
	if most == 0 {
		most = s.numSMs
	}
	return cuda.Linear(max(1, min(most, s.numSMs, (warps+perBlock-1)/perBlock)), Threads)
}

// Quantise narrows rows to e4m3.
func (s *ExchangeSet) Quantise(st *cuda.Stream, a *QuantArgs, most int) error {
	l := s.over(int(a.Rows)*int(a.Hidden+127)/128, most)
	return run(s, st, s.quantise, &l, a, nil)
}

// Partials makes partial rows.
func (s *ExchangeSet) Partials(st *cuda.Stream, a *PartialArgs, most int) error {
	l := s.over(int(a.MaxRows)*8, most) // a row for several warps where they are few
	l.Block[0] = uint32(s.partialThreads(int(a.MaxRows)))
	return run(s, st, s.partials, &l, a, nil)
}

// Bias rounds sums plus bias.
func (s *ExchangeSet) Bias(st *cuda.Stream, a *BiasArgs, rows, most int) error {
	l := s.over(rows*int(a.Hidden)/32, most)
	return run(s, st, s.addBias, &l, a, nil)
}

// Expand copies rows to slots, of which there are at most maxSlots.
func (s *ExchangeSet) Expand(st *cuda.Stream, a *ExpandArgs, maxSlots, most int) error {
	l := s.over(maxSlots, most)
	return run(s, st, s.expand, &l, a, nil)
}
