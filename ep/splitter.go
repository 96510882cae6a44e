package ep

import "github.com/weftgo/weft/comm"

// Splitter is an optional power of an Exchanger, of alltoall with Config.LowLatency (without it the methods are there, and are
// Invalid errors): both halves of a Dispatch and of a Combine
// as calls of their own, so that other work runs while rows travel. A Send waits for no peer, a Recv does. On a
// GPU there are two exceptions, which hold the stream: after a result that was released, the bank's next Send waits until every rank
// has begun that Dispatch too; and one that this rank refuses may wait for ranks that have not begun the bank's last refused one yet.
//
//	r, err := x.DispatchSend(s, tokens, routing)   pack and push
//	...                                            anything: other streams, other exchangers, collectives
//	err = x.DispatchRecv(s, r)                     wait, index: r is what Dispatch would have returned
//	...                                            experts read r.X, write r.Y
//	err = x.CombineSend(s, r.Y, r)                 add up what this rank has of each token, and push
//	...
//	err = x.CombineRecv(s, out, r, bias...)        wait, add up
//
// A pair gives the same bits as the whole call, and ranks may mix pairs and whole calls; the order of the calls on all
// exchangers and Comms is the same on all ranks as ever, with the Recv in the place of the whole call. On a GPU the Sends of
// one exchanger come in the same order too, where a whole call counts as one: their numbers and banks belong together. And after a
// released result all ranks begin the next Dispatch at one place in that order, not some with a Send and, behind other
// collectives, some with a whole call: each would wait for the other until its deadline.
//
// Halves that are out of order (a Recv without its Send, a second Send or Recv of the same result, a Combine before DispatchRecv)
// are Invalid errors on this rank and change nothing: the right call may follow.
type Splitter interface {
	// DispatchSend takes a bank and begins a Dispatch. x and the buffers of r may be written again when it returns on the CPU,
	// after it in the stream on a GPU. Of the result nothing may be read yet, and only DispatchRecv and Release may have
	// it. It is an Invalid error of this rank alone, and nothing happens, when all banks hold results or the exchanger is
	// closed. Any other wrong argument is an error of DispatchRecv, on every rank, as of Dispatch: all ranks must
	// hear of it, and they do so there.
	DispatchSend(s comm.Stream, x comm.Buffer, r Routing) (*Received, error)
	// DispatchRecv ends it and fills in r. After an error r is released; its bank is free.
	DispatchRecv(s comm.Stream, r *Received) error
	// CombineSend begins a Combine of the expert outputs y. When it returns (on a GPU after it in the stream) y may be written again,
	// unless it is r.X: r.X must be neither written nor read any more, since a rank that is ahead may already send the
	// bank's next rows there. A wrong call is an Invalid error on this rank only, and takes nothing; after any other error r is released.
	CombineSend(s comm.Stream, y comm.Buffer, r *Received) error
	// CombineRecv ends it: it writes out, as Combine does, and releases r. out and bias belong to the call. A wrong call is an
	// Invalid error on this rank only, and takes nothing.
	CombineRecv(s comm.Stream, out comm.Buffer, r *Received, bias ...comm.Buffer) error
}
