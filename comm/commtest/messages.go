package commtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/dtype"
)

// messages tries Send and Recv.
func (s *suite) messages(t *testing.T) {
	t.Run("ring", func(t *testing.T) { s.ring(t, s.most()) })
	t.Run("shapes differ", s.messagesDiffer)
}

// ring passes tensors around; even ranks send first.
func (s *suite) ring(t *testing.T, ranks int) {
	if ranks < 2 {
		t.Skip("a message needs two ranks")
	}
	w := s.world(t, ranks)
	l := &ledger{complete: s.complete}
	Run(t, w, func(ctx context.Context, tb testing.TB, c *comm.Comm) {
		to, from := (c.Rank()+1)%ranks, (c.Rank()+ranks-1)%ranks
		for _, rows := range []int{1, 0, 40} {
			for _, typ := range dtype.All() {
				src, dst := alloc(tb, c, typ, rows, 9, 3), alloc(tb, c, typ, rows, 9, 5)
				upload(tb, c, src.view, exact(typ, rows, 9, c.Rank(), 0))
				send := func() bool { return l.settle(tb, comm.Send, c.Send(comm.Stream{}, src.view, to)) }
				recv := func() bool { return l.settle(tb, comm.Recv, c.Recv(comm.Stream{}, dst.view, from)) }
				first, second := send, recv
				if c.Rank()%2 == 1 {
					first, second = recv, send
				}
				if !first() || !second() {
					return
				}
				require.NoError(tb, c.Wait(ctx, comm.Stream{}))
				require.Equal(tb, exact(typ, rows, 9, from, 0), download(tb, c, dst.view))
				dst.requireMargin(tb, c, 0, rows)
			}
		}
	})
	l.finish(t)
	for _, c := range w.Local() {
		st := c.Stats()
		require.EqualValues(t, 41*9*(4+2+2+1+1+1+1+4+8), st[comm.Send].SentBytes+st[comm.Recv].SentBytes)
	}
}

// messagesDiffer sends a shape that the other rank does not expect.
func (s *suite) messagesDiffer(t *testing.T) {
	w := s.world(t, 2)
	s.allInvalid(t, w, func(tb testing.TB, c *comm.Comm) error {
		if c.Rank() == 0 {
			return c.Send(comm.Stream{}, alloc(tb, c, dtype.F32, 2, 3, 0).view, 1)
		}
		return c.Recv(comm.Stream{}, alloc(tb, c, dtype.F32, 3, 3, 0).view, 0)
	}, "rank 0 calls send", "rank 1 calls recv", "f32[2, 3]", "f32[3, 3]")
}
