package ep

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/routing"
)

var plain = Config{NumExperts: 8, TopK: 2, Hidden: 16, MaxTokensPerRank: 4}

func TestValidate(t *testing.T) {
	require.NoError(t, plain.Validate())
	for text, change := range map[string]func(*Config){
		"NumExperts 0, TopK 2, Hidden 16":                                      func(c *Config) { c.NumExperts = 0 },
		"NumExperts 8, TopK -1, Hidden 16":                                     func(c *Config) { c.TopK = -1 },
		"NumExperts 8, TopK 2, Hidden 0":                                       func(c *Config) { c.Hidden = 0 },
		"MaxTokensPerRank 0":                                                   func(c *Config) { c.MaxTokensPerRank = 0 },
		"DType i8; use f32, bf16 or f16":                                       func(c *Config) { c.DType = dtype.I8 },
		"Wire bf16 with DType f32":                                             func(c *Config) { c.Wire = dtype.BF16 },
		"WireCols 8, ScaleBytes 0 are of the caller's own rows: set Quantised": func(c *Config) { c.WireCols = 8 },
		"WireCols 0, ScaleBytes 3 are of the caller's own":                     func(c *Config) { c.ScaleBytes = 3 },
		"WireCols 0, ScaleBytes -3: neither":                                   func(c *Config) { c.Quantised, c.Wire, c.ScaleBytes = true, dtype.U8, -3 },
		"Quantised rows with Wire bf16; use f8e4m3, f8e5m2, i8 or u8":          func(c *Config) { c.Quantised, c.Wire = true, dtype.BF16 },
		"Quantised rows with Wire invalid":                                     func(c *Config) { c.Quantised = true },
		"unknown layout(2)":                                                    func(c *Config) { c.Layout = 2 },
		"output(3)":                                                            func(c *Config) { c.Output = 3 },
		"overflow(4)":                                                          func(c *Config) { c.Overflow = 4 },
		"Alignment -1, MaxRecvRows 0, Banks 0":                                 func(c *Config) { c.Alignment = -1 },
		"Alignment 0, MaxRecvRows -7, Banks 0":                                 func(c *Config) { c.MaxRecvRows = -7 },
		"Banks 0, Blocks -1: none may be negative":                             func(c *Config) { c.Blocks = -1 },
		"Alignment 0, MaxRecvRows 0, Banks -2":                                 func(c *Config) { c.Banks = -2 },
		"LowLatency with MaxTokensPerRank 257 > 256":                           func(c *Config) { c.LowLatency, c.MaxTokensPerRank = true, 257 },
		"cannot be had with the layout expanded":                               func(c *Config) { c.LowLatency, c.Layout = true, Expanded },
		"rows of each rank, and MaxRecvRows 7 with":                            func(c *Config) { c.LowLatency, c.MaxRecvRows = true, 7 },
		"with Overflow drop cannot change that":                                func(c *Config) { c.LowLatency, c.Overflow = true, Drop },
		"room for 2 ranks x 4 rows, and MaxRecvRows 4":                         func(c *Config) { c.LowLatency, c.MaxRecvRows = true, 4 },
		"RankInvariant sums expert rows":                                       func(c *Config) { c.RankInvariant, c.Output = true, PartialRows },
		"placement is for 8 experts on 3 ranks":                                func(c *Config) { c.Placement = routing.Placement{NumExperts: 8, Size: 3} },
		"placement is for 9 experts on 2 ranks":                                func(c *Config) { c.Placement = routing.Placement{NumExperts: 9, Size: 2} },
		"expert 1 has no replica":                                              func(c *Config) { c.Placement = routing.Placement{NumExperts: 8, Size: 2, Physical: []int32{0}} },
		"2147483648 slots (MaxRecvRows 1073741824 ":                            func(c *Config) { c.MaxTokensPerRank = 1 << 29 },
		"2147483648 received rows (2 ranks x":                                  func(c *Config) { c.MaxTokensPerRank = 1 << 30 },
		"MaxTokensPerRank 9223372036854775807, Ali":                            func(c *Config) { c.MaxTokensPerRank = math.MaxInt }, // 2 x that is -2
		"TopK 4611686018427387904, Hidden 16, MaxT":                            func(c *Config) { c.TopK = 1 << 62 },
		"Alignment 9223372036854775807: none may":                              func(c *Config) { c.Alignment = math.MaxInt },
		"2147483652 slots (MaxRecvRows 8 x TopK 2,":                            func(c *Config) { c.Alignment = 1<<29 + 1 - 3 },
		"Banks 1073741824 > 1024":                                              func(c *Config) { c.Banks = 1 << 30 },
	} {
		c := plain
		change(&c)
		_, err := c.Fill(2)
		require.ErrorContains(t, err, text)
	}
	_, err := Config{}.Fill(1)
	require.Error(t, err)
}

func TestDefaults(t *testing.T) {
	c, err := plain.Fill(3)
	require.NoError(t, err)
	want := plain
	want.DType, want.Wire, want.Alignment, want.Banks, want.MaxRecvRows = dtype.F32, dtype.F32, 1, 1, 12
	want.WireCols = 16
	want.Placement = routing.Placement{NumExperts: 8, Size: 3}
	require.Equal(t, want, c)
	again, err := c.Fill(3)
	require.NoError(t, err)
	require.Equal(t, c, again)
	c.MaxRecvRows = 99
	require.Equal(t, 12, c.WithDefaults(3).MaxRecvRows, "more than the worst case is the worst case")
	require.Zero(t, c.NumScales())
	c.Wire, c.Hidden = dtype.F8E4M3, 129
	require.Equal(t, 2, c.NumScales())

	own := plain
	own.Quantised, own.Wire, own.ScaleBytes = true, dtype.F8E4M3, 7
	own, err = own.Fill(3)
	require.NoError(t, err)
	require.Equal(t, 16, own.WireCols)
	require.Zero(t, own.NumScales())
	require.False(t, own.Quantises())
	typ, cols := own.Scales()
	require.Equal(t, "u8 7", fmt.Sprint(typ, " ", cols))
	own.WireCols = 5
	typ, cols = own.Input()
	require.Equal(t, "f8e4m3 5", fmt.Sprint(typ, " ", cols))
}

func TestBytesGrowWithEverything(t *testing.T) {
	bigger := map[string]func(*Config){
		"hidden": func(c *Config) { c.Hidden *= 2 }, "tokens": func(c *Config) { c.MaxTokensPerRank *= 2 },
		"topK": func(c *Config) { c.TopK *= 2 }, "layout": func(c *Config) { c.Layout = Expanded },
		"quantised": func(c *Config) { c.Quantised, c.Wire, c.WireCols = true, dtype.U8, 99 },
		"banks":     func(c *Config) { c.Banks = 2 }, "alignment": func(c *Config) { c.Alignment = 64 },
	}
	s, p := plain.Bytes(4)
	require.Positive(t, s)
	for name, change := range bigger {
		c := plain
		change(&c)
		s2, p2 := c.Bytes(4)
		require.Greater(t, s2+p2, s+p, name)
	}
	c := plain
	c.MaxRecvRows = 3
	s2, p2 := c.Bytes(4)
	require.Less(t, s2+p2, s+p)
}

type released struct{ times int }

func (r *released) Release() { r.times++ }

func TestExperts(t *testing.T) {
	r := &Received{Index: Index{Offsets: comm.Of([]int32{0, 4, 4, 8}, 4), Counts: comm.Of([]int32{3, 0, 4, 4, 0, 4}, 3), Row: comm.Of(make([]int32, 8), 8)}}
	require.Equal(t, 3, r.Index.NumLocalExperts())
	require.Equal(t, 8, r.Index.NumSlots())
	got := map[int][2]int{}
	for e, span := range r.Experts(context.Background()) {
		got[e] = span
	}
	require.Equal(t, map[int][2]int{0: {0, 3}, 2: {4, 8}}, got)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	times := 0
	for range r.Experts(ctx) {
		times++
		cancel()
	}
	require.Equal(t, 1, times, "it stops when ctx ends")
	for range r.Experts(context.Background()) {
		break
	}
	for range (&Received{}).Experts(context.Background()) {
		t.Error("an empty result has experts")
	}
	(&Received{}).Release()
	state := &released{}
	r.State = state
	r.Release()
	require.Equal(t, 1, state.times)
}

func ExampleConfig_Bytes() {
	c := Config{NumExperts: 128, TopK: 8, Hidden: 2048, MaxTokensPerRank: 256, DType: dtype.BF16}
	symmetric, private := c.Bytes(8)
	fmt.Printf("at most %d MiB that other ranks read, %d MiB private\n", symmetric>>20, private>>20)
	// Output: at most 51 MiB that other ranks read, 64 MiB private
}
