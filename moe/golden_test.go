package moe_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/moe"
)

// golden is testdata/moe-layer.json: a layer of the bundled model, computed by another implementation.
type golden struct {
	Layer    int         `json:"layer"`
	X        [][]uint16  `json:"x_bf16_bits"`
	Logits   [][]float32 `json:"router_logits"`
	TopK     [][]int32   `json:"topk"`
	Weights  [][]float32 `json:"weights"`
	Out      [][]float32 `json:"out"`
	Norm     bool        `json:"norm_topk_prob"`
	flatX    []float32
	flatOut  []float32
	flatIDs  []int32
	flatWgts []float32
}

func readGolden(t testing.TB) *golden {
	raw, err := os.ReadFile("testdata/moe-layer.json")
	require.NoError(t, err)
	g := new(golden)
	require.NoError(t, json.Unmarshal(raw, g))
	for i := range g.X {
		for _, b := range g.X[i] {
			g.flatX = append(g.flatX, math.Float32frombits(uint32(b)<<16))
		}
		g.flatOut = append(g.flatOut, g.Out[i]...)
		g.flatIDs = append(g.flatIDs, g.TopK[i]...)
		g.flatWgts = append(g.flatWgts, g.Weights[i]...)
	}
	require.NotEmpty(t, g.flatOut)
	return g
}

// bundledLayer reads one layer of the bundled model.
func bundledLayer(t testing.TB, layer int) *model {
	raw, err := os.ReadFile("../examples/internal/bundled/judge-moe/model.safetensors")
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(raw[8:8+n], &header))
	data := raw[8+n:]
	read := func(format string, a ...any) []float32 {
		name := fmt.Sprintf("model.layers.%d.mlp.", layer) + fmt.Sprintf(format, a...)
		h, ok := header[name]
		require.True(t, ok, name)
		require.Equal(t, "BF16", h.DType, name)
		x := make([]float32, (h.Offsets[1]-h.Offsets[0])/2)
		for i := range x {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[h.Offsets[0]+2*i:])) << 16)
		}
		return x
	}
	m := &model{cfg: moe.Config{Hidden: 192, NumExperts: 32, TopK: 4, Intermediate: 80, Renormalize: true}}
	m.router = read("gate.weight")
	for e := range m.cfg.NumExperts {
		m.experts = append(m.experts, moe.Expert{Gate: read("experts.%d.gate_proj.weight", e),
			Up: read("experts.%d.up_proj.weight", e), Down: read("experts.%d.down_proj.weight", e)})
	}
	return m
}

func TestGolden(t *testing.T) {
	g := readGolden(t)
	m := bundledLayer(t, g.Layer)
	m.cfg.Renormalize = g.Norm
	for _, p := range []struct {
		parallel moe.Parallel
		strategy string
	}{
		{moe.Parallel{TP: 1, DP: 1}, ""}, {moe.Parallel{TP: 8, DP: 1}, ""}, {moe.Parallel{TP: 8, DP: 1, EP: true}, ""},
		{moe.Parallel{TP: 1, DP: 8}, ""}, {moe.Parallel{TP: 3, DP: 1}, ""}, {moe.Parallel{TP: 2, DP: 2}, ""},
	} {
		t.Run(p.parallel.String()+p.strategy, func(t *testing.T) {
			out := m.forward(t, p.parallel, nil, g.flatX, split(p.parallel, len(g.X), 1), func(c *comm.Comm, l *moe.Layer, _ comm.Stats) {
				if p.parallel.DP == 1 {
					ids, weights := l.Routing()
					require.Equal(t, g.flatIDs, ids)
					requireNear(t, g.flatWgts, weights, 1e-5, "weights")
				}
			})
			requireNear(t, g.flatOut, out, 1e-4, "out")
		})
	}
}
