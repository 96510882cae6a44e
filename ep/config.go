package ep

import (
	"fmt"

	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/routing"
)

// Layout says how received rows lie in Received.X.
type Layout uint8

// The layouts.
const (
	Rows     Layout = iota // each received row once, in (source rank, token) order; the index groups them by expert
	Expanded               // one copy per (token, expert), grouped by local expert, padded with zero rows to Alignment
)

// String returns "rows" or "expanded".
func (l Layout) String() string { return name(uint8(l), "layout", "rows", "expanded") }

// Output says what the experts hand to Combine.
type Output uint8

// The outputs.
const (
	ExpertRows  Output = iota // one row per slot of the index [numSlots, hidden]; Combine weights and sums them
	PartialRows               // one row per received row [numRows, hidden], already weighted and summed over this rank's experts
)

// String returns "expert rows" or "partial rows".
func (o Output) String() string { return name(uint8(o), "output", "expert rows", "partial rows") }

// Overflow says what happens to rows beyond MaxRecvRows.
type Overflow uint8

// The policies.
const (
	Fail Overflow = iota // every rank gets an Invalid error with the numbers, and nothing is exchanged
	Drop                 // the last rows in (source, token) order are not sent, and counted
)

// String returns "fail" or "drop".
func (o Overflow) String() string { return name(uint8(o), "overflow", "fail", "drop") }

func name(i uint8, kind string, names ...string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, i)
}

// Config describes an exchange. All ranks must give the same; constructors check that they do.
type Config struct {
	NumExperts, TopK, Hidden int
	MaxTokensPerRank         int               // the most rows one rank may dispatch
	DType                    dtype.DType       // of x, y and out: F32, BF16 or F16; zero means F32
	Wire                     dtype.DType       // of dispatched rows: zero means DType; F8E4M3 adds one scale per 128 values; see Quantised
	Placement                routing.Placement // zero means linear over the ranks of the Comm
	Layout                   Layout
	Output                   Output
	Alignment                int // slots of an expert are padded to a multiple; 0 means 1
	MaxRecvRows              int // rows one rank can receive; 0 means the worst case, ranks x MaxTokensPerRank
	Overflow                 Overflow
	Banks                    int  // results alive at once; 0 means 1
	RankInvariant            bool // sum all k expert rows at the source in k order (alltoall, ExpertRows): same bits for any number of ranks

	// Blocks is the most thread blocks of a kernel on a GPU, each on a multiprocessor of its own, so that other work has the rest. 0
	// leaves it to the driver: for kernels that wait for peers what comm/p2p computed from the GPU and the ranks that share it,
	// or was told (p2p.Config.Blocks), which is never exceeded; all multiprocessors for those that wait for nobody.
	Blocks int

	// LowLatency is a mode for few tokens (MaxTokensPerRank at most MaxLowLatencyTokens), of strategies that have it. The rows of
	// source rank r in Received.X begin at r x MaxTokensPerRank, in token order, with gaps between sources: a row's place is known
	// before any rank has said how many it sends. On a GPU that makes one kernel each way, which waits for its peers
	// once. It needs the layout Rows and room for all rows: MaxRecvRows 0 and Overflow Fail. The Exchanger is a Splitter.
	LowLatency bool

	// Quantised says that x has the caller's own quantised rows: of type Wire (F8E4M3, F8E5M2, I8 or U8), which travel byte for
	// byte, each with ScaleBytes bytes of scales from Routing.Scales, whose meaning is the caller's too. y and out are of DType
	// as ever. Two fp4 values in a U8 are WireCols = Hidden/2.
	Quantised  bool
	WireCols   int // columns of such a row; 0 means Hidden
	ScaleBytes int // bytes of its scales; 0: it has none
}

// ScaleGroup is how many values of a row share one scale on an fp8 wire. The last group of a row may be shorter.
const ScaleGroup = 128

// MaxLowLatencyTokens is the largest MaxTokensPerRank with LowLatency.
const MaxLowLatencyTokens = 256

// Quantises reports whether Dispatch narrows rows to fp8 on their way, with scales of its own.
func (c Config) Quantises() bool { return c.Wire == dtype.F8E4M3 && !c.Quantised }

// NumScales returns the scales that Dispatch makes for a row: ceil(Hidden / ScaleGroup) when it narrows rows to fp8, else 0.
func (c Config) NumScales() int {
	if !c.Quantises() {
		return 0
	}
	return (c.Hidden + ScaleGroup - 1) / ScaleGroup
}

// Input returns type and columns of x: DType and Hidden, or of the caller's quantised rows. c must have its defaults.
func (c Config) Input() (t dtype.DType, cols int) {
	if c.Quantised {
		return c.Wire, c.WireCols
	}
	return c.DType, c.Hidden
}

// Scales returns type and columns of Received.Scales: F32 and NumScales, or U8 and ScaleBytes of the caller's; no columns when rows have
// none.
func (c Config) Scales() (t dtype.DType, cols int) {
	if c.Quantised {
		return dtype.U8, c.ScaleBytes
	}
	return dtype.F32, c.NumScales()
}

// wireCols returns the columns of a row on its way.
func (c Config) wireCols() int {
	if c.Quantised && c.WireCols > 0 {
		return c.WireCols
	}
	return c.Hidden
}

// WithDefaults returns c with every zero that means a default replaced, for a group of size ranks.
func (c Config) WithDefaults(size int) Config {
	if c.DType == dtype.Invalid {
		c.DType = dtype.F32
	}
	if c.Wire == dtype.Invalid {
		c.Wire = c.DType
	}
	if c.Placement.NumExperts == 0 && c.Placement.Size == 0 && c.Placement.Physical == nil {
		c.Placement.NumExperts, c.Placement.Size = c.NumExperts, size
	}
	c.WireCols = c.wireCols()
	c.Alignment = max(c.Alignment, 1)
	c.Banks = max(c.Banks, 1)
	if worst := size * c.MaxTokensPerRank; c.MaxRecvRows == 0 || c.MaxRecvRows > worst {
		c.MaxRecvRows = worst
	}
	return c
}

// Bounds on sizes, so that products of two of them fit 64 bits.
const (
	maxInt32 = 1<<31 - 1
	maxBanks = 1 << 10
)

// Validate reports the first thing that is wrong with c on its own, with the numbers. Zeros that mean a default are fine.
func (c Config) Validate() error {
	switch {
	case c.NumExperts < 1 || c.TopK < 1 || c.Hidden < 1:
		return fmt.Errorf("exchange: NumExperts %d, TopK %d, Hidden %d: each must be at least 1", c.NumExperts, c.TopK, c.Hidden)
	case max(c.NumExperts, c.TopK, c.Hidden, c.MaxTokensPerRank, c.Alignment) > maxInt32:
		return fmt.Errorf("exchange: NumExperts %d, TopK %d, Hidden %d, MaxTokensPerRank %d, Alignment %d: none may exceed %d",
			c.NumExperts, c.TopK, c.Hidden, c.MaxTokensPerRank, c.Alignment, maxInt32)
	case c.Banks > maxBanks:
		return fmt.Errorf("exchange: Banks %d > %d: each holds memory of its own; lower it", c.Banks, maxBanks)
	case c.MaxTokensPerRank < 1:
		return fmt.Errorf("exchange: MaxTokensPerRank %d: at least 1 is needed, also on ranks without tokens", c.MaxTokensPerRank)
	case c.DType != dtype.Invalid && c.DType != dtype.F32 && c.DType != dtype.BF16 && c.DType != dtype.F16:
		return fmt.Errorf("exchange: DType %v; use f32, bf16 or f16", c.DType)
	case c.Quantised && (c.Wire == dtype.Invalid || c.Wire.Size() != 1):
		return fmt.Errorf("exchange: Quantised rows with Wire %v; use f8e4m3, f8e5m2, i8 or u8", c.Wire)
	case !c.Quantised && c.Wire != dtype.Invalid && c.Wire != dtype.F8E4M3 && c.Wire != c.WithDefaults(1).DType:
		return fmt.Errorf("exchange: Wire %v with DType %v; use the same type or f8e4m3, or set Quantised and give rows of that type", c.Wire, c.WithDefaults(1).DType)
	case c.WireCols < 0 || c.ScaleBytes < 0 || max(c.WireCols, c.ScaleBytes) > maxInt32:
		return fmt.Errorf("exchange: WireCols %d, ScaleBytes %d: neither may be negative or exceed %d", c.WireCols, c.ScaleBytes, maxInt32)
	case !c.Quantised && (c.ScaleBytes != 0 || c.WireCols != 0 && c.WireCols != c.Hidden):
		return fmt.Errorf("exchange: WireCols %d, ScaleBytes %d are of the caller's own rows: set Quantised", c.WireCols, c.ScaleBytes)
	case c.Layout > Expanded || c.Output > PartialRows || c.Overflow > Drop:
		return fmt.Errorf("exchange: unknown %v, %v or %v", c.Layout, c.Output, c.Overflow)
	case c.Alignment < 0 || c.MaxRecvRows < 0 || c.Banks < 0 || c.Blocks < 0:
		return fmt.Errorf("exchange: Alignment %d, MaxRecvRows %d, Banks %d, Blocks %d: none may be negative", c.Alignment, c.MaxRecvRows, c.Banks, c.Blocks)
	case c.LowLatency && c.MaxTokensPerRank > MaxLowLatencyTokens:
		return fmt.Errorf("exchange: LowLatency with MaxTokensPerRank %d > %d; leave it out for more tokens", c.MaxTokensPerRank, MaxLowLatencyTokens)
	case c.LowLatency && c.Layout != Rows:
		return fmt.Errorf("exchange: LowLatency has fixed places for rows and cannot be had with the layout %v; use rows", c.Layout)
	case c.LowLatency && (c.Overflow != Fail || c.MaxRecvRows%max(c.MaxTokensPerRank, 1) != 0):
		return fmt.Errorf("exchange: LowLatency has room for the %d rows of each rank, and MaxRecvRows %d with Overflow %v cannot change that; leave both out",
			c.MaxTokensPerRank, c.MaxRecvRows, c.Overflow)
	case c.RankInvariant && c.Output != ExpertRows:
		return fmt.Errorf("exchange: RankInvariant sums expert rows at the source and cannot be had with %v", c.Output)
	}
	return nil
}

// Fill returns c with defaults for a group of size ranks, or what is wrong with it: what Validate says, a placement for
// other numbers, or sizes that do not fit 32-bit row numbers.
func (c Config) Fill(size int) (Config, error) {
	if err := c.Validate(); err != nil {
		return c, err
	}
	c = c.WithDefaults(size)
	if err := c.Placement.Validate(); err != nil {
		return c, fmt.Errorf("exchange: %w", err)
	}
	if p := c.Placement; p.NumExperts != c.NumExperts || p.Size != size {
		return c, fmt.Errorf("exchange: the placement is for %d experts on %d ranks, the exchange for %d experts on %d ranks",
			p.NumExperts, p.Size, c.NumExperts, size)
	}
	if worst := size * c.MaxTokensPerRank; c.LowLatency && c.MaxRecvRows != worst {
		return c, fmt.Errorf("exchange: LowLatency has room for %d ranks x %d rows, and MaxRecvRows %d cannot change that; leave it out",
			size, c.MaxTokensPerRank, c.MaxRecvRows)
	}
	if c.MaxRecvRows > maxInt32 {
		return c, fmt.Errorf("exchange: %d received rows (%d ranks x MaxTokensPerRank %d) do not fit 32 bits; lower MaxTokensPerRank or MaxRecvRows",
			c.MaxRecvRows, size, c.MaxTokensPerRank)
	}
	if slots := c.MaxSlots(); slots > maxInt32 {
		return c, fmt.Errorf("exchange: %d slots (MaxRecvRows %d x TopK %d, padded to %d) do not fit 32 bits; lower MaxTokensPerRank or MaxRecvRows",
			slots, c.MaxRecvRows, c.TopK, c.Alignment)
	}
	return c, nil
}

// MaxSlots bounds the slots of one rank's index, padding included. c must have its defaults.
func (c Config) MaxSlots() int64 {
	numLocal := int64(c.Placement.NumLocal(0)) // no rank has more
	return int64(c.MaxRecvRows)*int64(c.TopK) + numLocal*int64(c.Alignment-1)
}

// MaxCopies bounds the (token, rank) pairs that one rank sends: a token goes to each of size ranks, or to one a choice.
func (c Config) MaxCopies(size int) int { return c.MaxTokensPerRank * min(size, c.TopK) }

// Bytes returns the most memory that one rank's exchanger uses in a group of size ranks: symmetric is what other ranks
// read or write (rows, scales and routing on their way), private is the rest (index, expanded rows, expert outputs). On
// the CPU memory grows to the largest batch seen and is kept; this is the bound, for either strategy. c needs no defaults
// filled in.
func (c Config) Bytes(size int) (symmetric, private int64) {
	c = c.WithDefaults(size)
	hidden, k, elem := int64(c.Hidden), int64(c.TopK), int64(c.DType.Size())
	scale, scales := c.Scales()
	row := int64(c.WireCols)*int64(c.Wire.Size()) + int64(max(scales, 1))*int64(scale.Size())
	tokens, recv := int64(c.MaxTokensPerRank), int64(c.MaxRecvRows)
	send, slots := int64(c.MaxCopies(size)), c.MaxSlots()
	back, returned := recv, send
	if c.RankInvariant {
		back, returned = recv*k, tokens*k
	}
	symmetric = (send+recv)*(row+8*k) + tokens*row // out and in, and what is quantised before it is packed
	symmetric += (back + returned) * hidden * elem
	symmetric += (recv + tokens) * hidden * 4 // partial sums in fp32, where a bias follows
	symmetric += int64(size) * int64(size+2) * 4
	if c.LowLatency { // notes and flags of rows, flags of pieces, counts per expert
		symmetric += recv*(24+16*k) + returned*64 + int64(size)*16*(2+int64(c.Placement.NumLocal(0))/2) + 8<<10
	}

	output := slots
	if c.Output == PartialRows {
		output = recv
	}
	private = output * hidden * elem
	if c.Layout == Expanded {
		private += slots * row
	}
	index := slots*12 + recv*k*8 + tokens*k*8 + send*(k+2)*4
	if c.RankInvariant {
		index += tokens*k*16 + recv*k*4
	}
	private += 2 * index // lists grow by more than they need
	return symmetric * int64(c.Banks), private * int64(c.Banks)
}
