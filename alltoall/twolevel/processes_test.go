package twolevel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftgo/weft/comm"
	"github.com/weftgo/weft/comm/local"
	"github.com/weftgo/weft/comm/nodes"
	"github.com/weftgo/weft/comm/rendezvous"
	"github.com/weftgo/weft/dtype"
	"github.com/weftgo/weft/ep"
	"github.com/weftgo/weft/internal/proctest"
)

// wire is a Conn between processes through their store, of the two collectives that cross between nodes. It stands in for NCCL on
// machines without GPUs.
type wire struct {
	store      rendezvous.Store
	name       string
	rank, size int
	ctx        context.Context
	cancel     context.CancelCauseFunc
}

func newWire(store rendezvous.Store, name string, rank, size int) *comm.Comm {
	w := &wire{store: store, name: name, rank: rank, size: size}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	c := comm.New(w, rank, size)
	comm.NewWorld([]*comm.Comm{c})
	return c
}

func (w *wire) Device() comm.Device { return comm.Device{} }

// Do gives every rank its rows under a key, and takes what the others gave.
func (w *wire) Do(_ comm.Stream, op *comm.Op) error {
	if op.Kind != comm.AllGather && op.Kind != comm.AllToAllV {
		return comm.Errorf(op.Label(), w.rank, comm.Unavailable, "not on this wire")
	}
	send, _ := op.Send.Host()
	recv, _ := op.Recv.Host()
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	key := func(from, to int) string { return fmt.Sprintf("%s/%d/%d/%d", w.name, op.Seq, from, to) }
	at := make([]int, len(op.Parts))
	for to := range w.size {
		msg := []byte{}
		for i, p := range op.Parts {
			rows := p.Src
			if op.Kind == comm.AllToAllV {
				rows = rows.Slice(at[i], at[i]+send[to])
				at[i] += send[to]
			}
			msg = append(msg, packed(rows)...)
		}
		if err := w.store.Set(ctx, key(w.rank, to), msg); err != nil {
			return w.failed(op, to, err)
		}
	}
	clear(at)
	for from := range w.size {
		msg, err := w.store.Get(ctx, key(from, w.rank))
		if err != nil {
			return w.failed(op, from, err)
		}
		for i, p := range op.Parts {
			n := p.Src.Rows()
			if op.Kind == comm.AllToAllV {
				n = recv[from]
			}
			for r := range n {
				msg = msg[copy(p.Dst.RowBytes(at[i]+r), msg):]
			}
			at[i] += n
		}
		if len(msg) != 0 {
			return comm.Errorf(op.Label(), w.rank, comm.Invalid, "%d bytes too many from rank %d", len(msg), from)
		}
	}
	return nil
}

func (w *wire) failed(op *comm.Op, peer int, err error) error {
	code := comm.Remote
	if cause := context.Cause(w.ctx); cause != nil {
		return comm.AbortedError(op.Label(), w.rank, cause)
	}
	if errors.Is(err, comm.Timeout) {
		code = comm.Timeout
	}
	return &comm.Error{Op: op.Label(), Rank: w.rank, Peer: peer, Code: code, Err: err}
}

func (w *wire) Split(context.Context, int, int) (comm.Conn, int, int, error) {
	return nil, 0, 0, comm.Errorf("split", w.rank, comm.Unavailable, "not on this wire")
}
func (w *wire) Wait(context.Context, comm.Stream) error { return nil }
func (w *wire) Abort(cause error)                       { w.cancel(cause) }
func (w *wire) Close(context.Context) error {
	w.cancel(nil)
	return nil
}

// openProcess makes the node of this process.
func openProcess(t *testing.T, c *rendezvous.Client, name string, numNodes, ranks int) *comm.World {
	inside, err := local.Open(local.Config{Ranks: ranks, Timeout: 10 * time.Second})
	require.NoError(t, err)
	n := nodes.Node{Inside: inside}
	for i := range ranks {
		n.Between = append(n.Between, newWire(c, fmt.Sprint(name, i), c.Job().Rank, numNodes))
	}
	w, err := nodes.Open(t.Context(), n)
	require.NoError(t, err)
	return w
}

// Two processes of two ranks have the bits of the two-level order, and receive what one node would.
func TestProcesses(t *testing.T) {
	const numNodes, ranks = 2, 2
	c, _ := proctest.Run(t, proctest.Config{Processes: numNodes})
	if c == nil {
		return
	}
	for i, dt := range []dtype.DType{dtype.F32, dtype.BF16} {
		j := newJob(ep.Config{NumExperts: 11, TopK: 4, Hidden: 40, DType: dt, RankInvariant: i == 1}, uint64(i), i, 12, 0, 5, 7)
		one := j.oneNode(t)
		w := openProcess(t, c, fmt.Sprint("job ", i, " column "), numNodes, ranks)
		stop := c.Guard(w)
		all := j.run(t, w, create)
		stop()
		for _, rank := range []int{c.Job().Rank * ranks, c.Job().Rank*ranks + 1} {
			if want := one[rank].out; i == 0 {
				require.Equal(t, j.want(numNodes, rank, nil), all[rank].out)
			} else {
				require.Equal(t, want, all[rank].out)
			}
			same(t, one[rank], all[rank], rank)
		}
	}
}

// When a node's process dies, the ranks of the others get errors that name one of its ranks or the process, and do not hang.
func TestProcessDies(t *testing.T) {
	const numNodes, ranks = 2, 2
	c, _ := proctest.Run(t, proctest.Config{Processes: numNodes, Dies: 1})
	if c == nil {
		return
	}
	w := openProcess(t, c, "job", numNodes, ranks)
	stop := c.Guard(w)
	defer stop()
	start := time.Now()
	j := newJob(ep.Config{NumExperts: 8, TopK: 2, Hidden: 8, DType: dtype.F32}, 1, 0, 4, 4, 4, 4)
	err := w.Run(t.Context(), func(ctx context.Context, c *comm.Comm) error {
		x, err := create(ctx, c, j.cfg)
		if err != nil {
			return err
		}
		for round := range 100 {
			if round == 3 && c.Rank() == 2 {
				proctest.Die()
			}
			if o, err := j.one(ctx, c.Rank(), x); err != nil || o.err != nil {
				return errors.Join(err, o.err)
			}
		}
		return nil
	})
	var e *comm.Error
	require.ErrorAs(t, err, &e)
	require.True(t, e.Peer == 2 || e.Peer == 3 || strings.Contains(err.Error(), "process 1 "), "%v", err) // the guard knows processes alone
	require.Less(t, time.Since(start), 9*time.Second)
	require.NoError(t, w.Close(t.Context()))
}
