package cublaslt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/gputest"
)

func TestBucket(t *testing.T) {
	for m, want := range map[int]int{0: 8, 1: 8, 8: 8, 9: 16, 16: 16, 17: 32, 4096: 4096, 4097: 8192} {
		require.Equal(t, want, Bucket(m), m)
	}
}

func TestValidate(t *testing.T) {
	good := Problem{M: 3, N: 8, K: 16, TransB: true, Type: dtype.BF16, Out: dtype.F32}
	require.NoError(t, good.Validate())
	for text, change := range map[string]func(*Problem){
		"[3, 0] x [0, 8], batch 1: sizes":  func(p *Problem) { p.K = 0 },
		"i32 x i32 into f32":               func(p *Problem) { p.Type = dtype.I32 },
		"f16 x f16 into bf16":              func(p *Problem) { p.Type, p.Out = dtype.F16, dtype.BF16 },
		"row strides 15, 16, 8 are short":  func(p *Problem) { p.LDA = 15 },
		"row strides 16, 16, 7 are short":  func(p *Problem) { p.LDD = 7 },
		"row strides 16, 12, 8 are short":  func(p *Problem) { p.LDB = 12 },
		"[-1, 16] x [16, 8], batch 1: siz": func(p *Problem) { p.M = -1 },
	} {
		p := good
		change(&p)
		err := p.Validate()
		require.ErrorIs(t, err, comm.Invalid, text)
		require.ErrorContains(t, err, text)
	}
}

// Every row of the table is in the real library.
func TestSymbols(t *testing.T) {
	gputest.Library(t, Init())
	require.Len(t, Symbols(), 16)
	for _, row := range Symbols() {
		require.NotZero(t, loaded.lib.Lookup(row.Name), row.Name)
	}
	require.Zero(t, loaded.lib.Lookup("cublasLtNoSuchCall"))
	require.Regexp(t, `^1[23]\.\d+\.\d+$`, loaded.version)
	require.NotEmpty(t, statusText(7))
	l, err := Loaded()
	require.NoError(t, err)
	require.FileExists(t, l.Path)
}

func TestUnavailable(t *testing.T) {
	err := initContext()
	if err == nil {
		t.Skip("there are a libcublasLt and a GPU here")
	}
	require.ErrorIs(t, err, comm.Unavailable)
	require.ErrorContains(t, err, "tried")
}
