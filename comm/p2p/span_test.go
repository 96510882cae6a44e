package p2p

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/internal/kernels"
	"github.com/weftgo/weft/symm"
)

// TestSpanConfig checks which ranks a process may have.
func TestSpanConfig(t *testing.T) {
	store := rendezvous.NewMemory()
	for want, cfg := range map[string]Config{
		"ranks 3 to 4 of 4":                  {Devices: oneGPU(2), FirstRank: 3, Size: 4, Store: store},
		"ranks -1 to 0 of 4":                 {Devices: oneGPU(2), FirstRank: -1, Size: 4, Store: store},
		"of 33; a world has 1 to 32":         {Devices: oneGPU(2), Size: 33, Store: store},
		"2 of 4 ranks are here; a world in ": {Devices: oneGPU(2), Size: 4},
	} {
		_, err := Open(t.Context(), cfg)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, want)
	}
	cfg := Config{Devices: oneGPU(3)}
	require.NoError(t, cfg.complete())
	require.Equal(t, 3, cfg.Size)
	require.False(t, cfg.spanning())
}

// TestByColor holds the rules of a split: by key, then by place; colors below 0 are in none.
func TestByColor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wishes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wish {
			return wish{rapid.IntRange(-1, 3).Draw(t, "color"), rapid.IntRange(-2, 2).Draw(t, "key")}
		}), 1, MaxRanks).Draw(t, "wishes")
		lists := byColor(wishes)
		seen := 0
		for color, list := range lists {
			for k, i := range list {
				require.Equal(t, color, wishes[i].Color)
				if k > 0 {
					before := list[k-1]
					require.True(t, wishes[before].Key < wishes[i].Key || wishes[before].Key == wishes[i].Key && before < i)
				}
				seen++
			}
		}
		for _, x := range wishes {
			if x.Color < 0 {
				seen++
			}
		}
		require.Equal(t, len(wishes), seen)
	})
}

// TestFitting names what ranks of two processes disagree on.
func TestFitting(t *testing.T) {
	good := func() []hello {
		list := make([]hello, 4)
		for i := range list {
			list[i] = hello{First: i / 2 * 2, Num: 2, Size: 4, Workspace: 1, Timeout: 2, Kernels: 3, PID: 40 + i/2}
		}
		return list
	}
	require.NoError(t, fitting(good(), 2))
	for want, change := range map[string]func(h *hello){
		"size: rank 0 has 4, rank 3 (process 41) has 5":      func(h *hello) { h.Size = 5 },
		"workspace: rank 0 has 1, rank 3 (process 41) has 9": func(h *hello) { h.Workspace = 9 },
		"timeout in nanoseconds: rank 0 has 2":               func(h *hello) { h.Timeout = 9 },
		"version of weft":                                    func(h *hello) { h.Kernels = 9 },
		"ranks: rank 0 has 0+2, rank 3 (process 41) has 0+2": func(h *hello) { h.First = 0 },
	} {
		list := good()
		change(&list[3])
		err := fitting(list, 0)
		require.ErrorIs(t, err, comm.Invalid)
		require.ErrorContains(t, err, want)
	}
}

// TestBlame turns a process of the store into a rank of the world.
func TestBlame(t *testing.T) {
	w := &world{cfg: Config{FirstRank: 2}, span: &span{hellos: []hello{{Process: 7}, {Process: 7}, {Process: 3}, {Process: 3}}}}
	lost := &comm.Error{Op: "store get", Rank: 7, Peer: 3, Code: comm.Remote, Err: errors.New("gone")}
	require.EqualError(t, w.blame(lost), "p2p: rank 2: remote (rank 2): gone")
	lost.Peer = 5
	require.EqualError(t, w.blame(lost), "p2p: rank 2: remote: gone")
	other := &comm.Error{Code: comm.Aborted}
	require.Same(t, other, w.blame(other))
}

// TestReachable accepts memory of the rank's block and no other.
func TestReachable(t *testing.T) {
	w := &world{}
	w.span = &span{job: symm.Job{Size: 2}, heap: &symm.Heap{Bytes: 4096, Own: []uintptr{1 << 30, 1 << 20}}}
	c := &conn{g: &group{w: w, shared: kernels.Foreign}, r: &rank{w: w, index: 1}}
	dev := comm.Device{Kind: comm.CUDA}
	at := func(addr uintptr, rows, cols, stride int) []comm.Part {
		return []comm.Part{{Dst: comm.At(dev, addr, 1, rows, cols, stride)}}
	}
	require.NoError(t, c.reachable(at(1<<20, 16, 64, 64)))
	require.NoError(t, c.reachable(at(1<<20+4096-8, 1, 2, 2)))
	require.NoError(t, c.reachable(at(0, 0, 2, 2)), "no rows")
	require.NoError(t, c.reachable([]comm.Part{{}}))
	require.Error(t, c.reachable(at(1<<20, 17, 64, 64)))
	require.NoError(t, c.reachable(at(1<<20, 2, 1, 1023)))
	require.Error(t, c.reachable(at(1<<20, 2, 2, 1023)))
	require.Error(t, c.reachable(at(1<<20-8, 1, 2, 2)))
	require.Error(t, c.reachable(at(1<<30, 1, 2, 2)), "the other rank's, as it sees it")
}
