package rendezvous

import (
	"context"
	"sync"
	"time"

	"github.com/weftgo/weft/comm"
)

// Context returns a context that ends with the job, too: its cause is then what Err says. It is for what waits for other
// processes outside of the store, such as opening a world. The caller calls cancel in the end.
func (c *Client) Context(ctx context.Context) (job context.Context, cancel func()) {
	job, end := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-c.dead:
			end(c.Err())
		case <-job.Done():
		}
	}()
	return job, func() {
		end(nil)
		<-over
	}
}

// Guard aborts w when the job dies, so that its ranks do not wait for processes that are gone, and aborts the job when w dies,
// so that other processes do not wait for this one. The caller calls stop when w is closed; stop waits for Guard's goroutine.
func (c *Client) Guard(w *comm.World) (stop func()) {
	end, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-c.dead:
			w.Abort(c.Err())
		case <-w.Done():
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = c.Abort(ctx, w.Err()) // the job may be dead already, or the store gone: then all know
		case <-end:
		case <-c.gone:
		}
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-over
	})
}
