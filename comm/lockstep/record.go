package lockstep

import (
	"fmt"
	"strings"

	"github.com/weftgo/weft/comm"
)

// words is the int64s of a record on the wire.
const words = 9

// mark is the first word of a record, so that an all_gather of this shape by someone else is told from ours.
const mark = 0x77656674_6c6f636b // "weftlock"

// row is a record as it travels.
type row struct {
	step uint64
	rank int // in the world, which errors name
	Record
}

func (r *row) encode(w []int64) {
	w[0] = mark
	w[1] = int64(r.step)
	w[2] = int64(r.Tokens)
	w[3] = int64(r.PaddedTokens)
	w[4] = int64(r.Mode)
	w[5] = int64(r.Hash)
	w[6] = int64(r.Generation)
	w[7] = 0
	if r.Stop {
		w[7] = 1
	}
	w[8] = int64(r.rank)
}

func (r *row) decode(w []int64) bool {
	r.step, r.rank = uint64(w[1]), int(w[8])
	r.Record = Record{Tokens: int(w[2]), PaddedTokens: int(w[3]), Mode: int(w[4]), Hash: uint64(w[5]),
		Generation: uint64(w[6]), Stop: w[7] == 1}
	return w[0] == mark
}

// check reports the first thing that ranks disagree on. All ranks hold the same records, so all report the same.
func (l *Lockstep) check() error {
	first := &l.records[0]
	for i := range l.records {
		r, lead := &l.records[i], &l.records[i-i%l.cfg.TP]
		switch {
		case r.step != first.step:
			return l.disagree(i, "the step", func(r *row) string { return fmt.Sprint(r.step) }, 0, len(l.records))
		case r.Mode != first.Mode:
			return l.disagree(i, "the mode", func(r *row) string { return fmt.Sprint(r.Mode) }, 0, len(l.records))
		case r.PaddedTokens != first.PaddedTokens:
			return l.disagree(i, "padded tokens", func(r *row) string { return fmt.Sprint(r.PaddedTokens) }, 0, len(l.records))
		case r.Tokens != lead.Tokens || r.Hash != lead.Hash:
			lo := i - i%l.cfg.TP
			return l.disagree(i, fmt.Sprintf("the batch of replica %d", i/l.cfg.TP), func(r *row) string {
				return fmt.Sprintf("%d tokens with hash %016x", r.Tokens, r.Hash)
			}, lo, lo+l.cfg.TP)
		}
	}
	return nil
}

// disagree makes the error that lists what each of ranks [lo, hi) said. Peer is the first rank that differs from rank lo.
func (l *Lockstep) disagree(peer int, what string, say func(*row) string, lo, hi int) error {
	var order []string
	ranks := map[string][]int{}
	for i := lo; i < hi; i++ {
		s := say(&l.records[i])
		if ranks[s] == nil {
			order = append(order, s)
		}
		ranks[s] = append(ranks[s], l.records[i].rank)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "step %d: ranks disagree on %s:", l.step, what)
	for i, s := range order {
		if i > 0 {
			b.WriteByte(';')
		}
		if r := ranks[s]; len(r) == 1 {
			fmt.Fprintf(&b, " rank %d says %s", r[0], s)
		} else {
			fmt.Fprintf(&b, " ranks %v say %s", r, s)
		}
	}
	e := comm.Errorf("lockstep", l.rank, comm.Invalid, "%s", b.String())
	e.Peer = l.records[peer].rank
	return e
}
