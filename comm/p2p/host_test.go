package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/internal/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFit holds the rule for shared GPUs on an H200's 132 multiprocessors.
func TestFit(t *testing.T) {
	for ranks, want := range map[int]int{1: 32, 2: 66, 4: 33, 8: 16, 16: 7, 31: 3} {
		got, err := fit(0, ranks, 132)
		require.NoError(t, err)
		require.Equal(t, want, got, "%d ranks", ranks)
		require.LessOrEqual(t, (ranks-1)*got+largestCluster, 132+largestCluster*boolInt(ranks == 1))
		_, err = fit(got, ranks, 132)
		require.NoError(t, err)
	}
	_, err := fit(17, 8, 132)
	require.ErrorContains(t, err, "(8 - 1) ranks x 17 blocks + a cluster of 16 = 135 must fit its 132 multiprocessors")
	_, err = fit(0, 31, 40)
	require.ErrorContains(t, err, "31 ranks cannot share it")
	_, err = fit(0, 32, 1000)
	require.ErrorContains(t, err, "queues for 31")
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestOpenRefuses checks what needs no GPU.
func TestOpenRefuses(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Devices: make([]comm.Device, 1)}, // cpu:0
		{Devices: oneGPU(MaxRanks + 1)},
		{Devices: oneGPU(1), Timeout: -1},
		{Devices: oneGPU(1), Blocks: -1},
	} {
		_, err := Open(t.Context(), cfg)
		require.ErrorIs(t, err, comm.Invalid)
	}
}

// TestArena gives out and takes back at random: pieces never overlap, and what is freed joins again.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		next := uintptr(1 << 20)
		grown := 0
		a := arena{grow: func(bytes int) (uintptr, int, func() error, error) {
			base := next
			next += uintptr(bytes) // chunks touch, and must not join
			grown++
			return base, bytes, func() error { return nil }, nil
		}}
		require.NoError(t, a.more(1<<16))
		type got struct {
			addr uintptr
			size int
		}
		var live []got
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				require.NoError(t, a.free(live[i].addr))
				require.Error(t, a.free(live[i].addr), "twice")
				live = append(live[:i], live[i+1:]...)
				continue
			}
			size := rapid.IntRange(1, 20000).Draw(t, "size")
			addr, err := a.alloc(size)
			require.NoError(t, err)
			require.Zero(t, addr%align)
			for _, x := range live {
				require.True(t, addr+uintptr(size) <= x.addr || x.addr+uintptr(x.size) <= addr, "overlap")
			}
			live = append(live, got{addr, size})
		}
		for _, x := range live {
			require.NoError(t, a.free(x.addr))
		}
		require.Len(t, a.spare, grown, "every chunk is one piece again")
	})
}

// TestLog remembers calls by number, with copies of what was the caller's.
func TestLog(t *testing.T) {
	var l log
	counts := []int{1, 2}
	op := comm.Op{Kind: comm.AllGatherV, Seq: 7, Send: comm.Host(counts),
		Parts: []comm.Part{{Src: comm.Of(make([]float32, 6), 3), Dst: comm.Of(make([]float32, 9), 3)}}}
	id := l.add(&op)
	counts[0] = 99
	label, text := l.describe(id)
	require.Equal(t, "all_gatherv #7", label)
	require.Equal(t, "all_gatherv #7 f32[2, 3] counts [1 2]", text)
	split := l.addSplit("split color 1 key 2")
	_, text = l.describe(split)
	require.Equal(t, "split color 1 key 2", text)
	for range numNotes {
		l.add(&op)
	}
	_, text = l.describe(id)
	require.Contains(t, text, "longer ago")
	require.Zero(t, testing.AllocsPerRun(10, func() { l.add(&op) }))
}

// TestRecords makes errors of what kernels write.
func TestRecords(t *testing.T) {
	w := &world{dead: make(chan struct{}), cfg: Config{Timeout: 5e9}}
	var members []*rank
	for i := range 3 {
		r := &rank{w: w, index: 10 + i, records: new([kernels.NumRecords]kernels.Record), next: 1}
		members = append(members, r)
	}
	w.ranks = make([]*rank, 13)
	copy(w.ranks[10:], members)
	g := newGroup(w, members)
	for i := range members {
		g.conns[i] = &conn{g: g, r: members[i], rank: i}
		members[i].conns = []*conn{g.conns[i]}
		op := comm.Op{Kind: comm.Barrier, Seq: uint64(i + 1)}
		g.conns[i].log.add(&op)
	}
	put := func(member int, seq uint64, rec kernels.Record) {
		rec.Seq, rec.Group, rec.Call = seq, g.id, 1
		members[member].records[seq%kernels.NumRecords] = rec
	}
	c := g.conns[0]
	require.NoError(t, c.pending())
	put(0, 1, kernels.Record{Why: kernels.Disagree, A: 0, B: 2, EpochSeen: 1, OtherCall: 1})
	err := c.pending()
	require.ErrorIs(t, err, comm.Invalid)
	require.ErrorContains(t, err, "rank 10 calls barrier #1, rank 12 calls barrier #3")
	require.NoError(t, c.pending(), "once")
	put(0, 2, kernels.Record{Why: kernels.Expected, A: 1, B: 2, N: 4, Limit: 3})
	require.ErrorContains(t, c.pending(), "rank 11 sends 4 rows to rank 12, which expects 3")
	put(1, 1, kernels.Record{Why: kernels.Timeout, Missing: 1 << 2})
	put(0, 3, kernels.Record{Why: kernels.Aborted, Missing: 1 << 2, By: 12})
	err = c.pending()
	require.ErrorIs(t, err, comm.Timeout, "a rank that waited for the same one")
	require.ErrorContains(t, err, "for rank 12")
	put(2, 1, kernels.Record{Why: kernels.Aborted, By: 12})
	err = g.conns[2].pending()
	require.ErrorIs(t, err, comm.Aborted, "the late rank itself")
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 12, e.Peer)
}

// TestSentBytes holds the counters against the formulas, for odd sizes.
func TestSentBytes(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8} {
		g := &group{members: make([]*rank, ranks)}
		var sum int64
		x := comm.Of(make([]dtype.BFloat16, 7*5), 5)
		for i := range ranks {
			c := &conn{g: g, rank: i}
			sum += c.sentBytes(&comm.Op{Kind: comm.AllReduce, Parts: []comm.Part{{Dst: x, Src: x}}})
		}
		require.EqualValues(t, 2*(ranks-1)*70, sum)
	}
}
