package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/moe"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]Layout{
		"tp1":              {Parallel: moe.Parallel{TP: 1, DP: 1}},
		"tp8":              {Parallel: moe.Parallel{TP: 8, DP: 1}},
		"tp8+ep8":          {Parallel: moe.Parallel{TP: 8, DP: 1, EP: true}},
		"dp2tp4+ep8":       {Parallel: moe.Parallel{TP: 4, DP: 2, EP: true}, Backend: "agrs"},
		"dp8":              {Parallel: moe.Parallel{TP: 1, DP: 8}},
		"dp2tp2":           {Parallel: moe.Parallel{TP: 2, DP: 2}},
		"dp8+ep8:agrs":     {Parallel: moe.Parallel{TP: 1, DP: 8, EP: true}, Backend: "agrs"},
		"dp3+ep3:alltoall": {Parallel: moe.Parallel{TP: 1, DP: 3, EP: true}, Backend: "alltoall"},
	} {
		l, err := Parse(name)
		require.NoError(t, err, name)
		require.Equal(t, want, l, name)
		again, err := Parse(l.String())
		require.NoError(t, err, l.String())
		require.Equal(t, l, again)
	}
}

func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"":                 "write it like",
		"ep8":              "write it like",
		"tp8+ep4":          "write +ep8",
		"tp0":              "0 ranks",
		"tp65":             "use 1 to 64",
		"dp9tp9":           "use 1 to 64",
		"tp8:agrs":         "has no use",
		"dp8:alltoall":     "has no use",
		"dp8+ep8:deepep":   "unknown backend",
		"tp99999999999999": "use 1 to 64",
	} {
		_, err := Parse(name)
		require.ErrorContains(t, err, text, name)
	}
}
