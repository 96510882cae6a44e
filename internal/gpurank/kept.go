package gpurank

import "github.com/weftgo/weft/comm"

// Kept is a copy of an Op, with its parts and host counts, that outlives the call. Keeping another one reuses its memory: up to
// two parts and as many counts as before allocate nothing. Its owner guards it.
type Kept struct {
	op         comm.Op
	store      [2]comm.Part // what parts needs no allocation for
	parts      []comm.Part
	send, recv []int
}

// Keep copies op.
func (k *Kept) Keep(op *comm.Op) {
	if k.parts == nil {
		k.parts = k.store[:0]
	}
	k.parts = append(k.parts[:0], op.Parts...)
	k.op = *op
	k.op.Parts = k.parts
	if host, ok := op.Send.Host(); ok {
		k.send = append(k.send[:0], host...)
		k.op.Send = comm.Host(k.send)
	}
	if host, ok := op.Recv.Host(); ok {
		k.recv = append(k.recv[:0], host...)
		k.op.Recv = comm.Host(k.recv)
	}
}

// Kind returns the kept operation's kind.
func (k *Kept) Kind() comm.OpKind { return k.op.Kind }

// Counts returns the kept host counts, nil where there are none. The next Keep overwrites them.
func (k *Kept) Counts() (send, recv []int) {
	send, _ = k.op.Send.Host()
	recv, _ = k.op.Recv.Host()
	return send, recv
}

// Label is the name and the number of the operation.
func (k *Kept) Label() string { return k.op.Label() }

// String is the operation in words.
func (k *Kept) String() string { return k.op.String() }
