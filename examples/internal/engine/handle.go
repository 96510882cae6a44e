package engine

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weftgo/weft/examples/internal/kvcache"
	"github.com/weftgo/weft/examples/internal/scheduler"
)

// Handle is a request under way. Any goroutine may use it, but one at a time calls Next.
type Handle struct {
	replica *replica
	request Request
	stops   []int32 // ids that end it
	seed    uint64
	seq     scheduler.Sequence
	unwatch func() bool // stops the watch over Submit's ctx; set and used under replica.mu
	fresh   bool        // not in a step yet; under replica.mu
	cost    int         // tokens to do, as Load counts them

	read    int           // tokens that Next returned
	changed chan struct{} // has room for one: something came since Next looked
	done    chan struct{} // closed at the end, when nothing below changes any more

	mu  sync.Mutex
	out Output
	err error
}

func newHandle(r *replica, id uint64, req Request, stops []int32, seed uint64, maxLen int) *Handle {
	h := &Handle{replica: r, request: req, stops: stops, seed: seed, fresh: true,
		changed: make(chan struct{}, 1), done: make(chan struct{})}
	room := min(req.MaxTokens, max(maxLen-len(req.IDs), 0), 1024) // the rest grows by append
	tokens := append(make([]int32, 0, len(req.IDs)+room), req.IDs...)
	h.seq = scheduler.Sequence{ID: id, Tokens: tokens, MaxTokens: req.MaxTokens, Score: req.Echo, Owner: h,
		Prefix: kvcache.Chain{Salt: req.CacheSalt}}
	h.request.IDs = tokens[:len(tokens):len(tokens)]
	h.request.Sampling.LogitBias = slices.Clone(req.Sampling.LogitBias)
	h.out.Usage.PromptTokens = len(tokens)
	h.out.Timing.Submitted = time.Now()
	if req.Echo {
		h.out.Echo = append(make([]float32, 0, len(tokens)), float32(math.NaN()))
		if req.Logprobs > 0 {
			h.out.EchoTop = make([][]TopLogprob, 1, len(tokens))
		}
	}
	return h
}

// ID returns the engine's number of the request.
func (h *Handle) ID() uint64 { return h.seq.ID }

// Replica returns the index of the replica that runs the request.
func (h *Handle) Replica() int { return h.replica.index }

// Next returns the next generated token, waiting for it if need be. After the last it returns io.EOF, or the error that ended
// the request. A ctx that ends ends the waiting only.
func (h *Handle) Next(ctx context.Context) (Event, error) {
	for {
		h.mu.Lock()
		if i := h.read; i < len(h.out.IDs) {
			h.read++
			e := Event{Index: i, ID: h.out.IDs[i]}
			if h.out.Logprobs != nil {
				e.Logprob = h.out.Logprobs[i]
			}
			if h.out.Top != nil {
				e.Top = h.out.Top[i]
			}
			if h.read == len(h.out.IDs) && h.out.Reason != FinishError { // an error is the next call's to tell
				e.Finish = h.out.Reason
			}
			h.mu.Unlock()
			return e, nil
		}
		ended, err := h.out.Reason != "", h.err
		h.mu.Unlock()
		if ended {
			if err == nil {
				err = io.EOF
			}
			return Event{}, err
		}
		select {
		case <-h.changed:
		case <-h.done:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// Wait returns the whole output when the request has ended. The error is nil unless the reason is FinishError, and then Output
// holds what came before; or ctx has ended, which ends the waiting only.
func (h *Handle) Wait(ctx context.Context) (Output, error) {
	select {
	case <-h.done:
	case <-ctx.Done():
		return Output{}, context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.out, h.err
}

// Echo returns the log-probabilities of the prompt, as in Output. They are complete when the first token has come, and
// when the request has ended by FinishStop or FinishLength.
func (h *Handle) Echo() ([]float32, [][]TopLogprob) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clip(h.out.Echo), slices.Clip(h.out.EchoTop)
}

// Done is closed when the request has ended.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Abort ends the request and frees its blocks before it returns. It does nothing once the request has ended.
func (h *Handle) Abort() { h.replica.end(h, FinishAbort, nil) }

// began notes the first step of the request.
func (h *Handle) began(now time.Time) {
	h.mu.Lock()
	if h.out.Timing.Scheduled.IsZero() {
		h.out.Timing.Scheduled = now
	}
	h.mu.Unlock()
}

// add takes what one step produced. reason is empty if the request goes on.
func (h *Handle) add(r *result, reason FinishReason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.Echo = append(h.out.Echo, r.echo...)
	h.out.EchoTop = append(h.out.EchoTop, r.echoTop...)
	if r.sampled {
		if len(h.out.IDs) == 0 {
			h.out.Timing.FirstToken = time.Now()
		}
		h.out.IDs = append(h.out.IDs, r.token)
		h.out.Usage.CompletionTokens++
		if h.request.Logprobs >= 0 {
			h.out.Logprobs = append(h.out.Logprobs, r.logprob)
		}
		if h.request.Logprobs > 0 {
			h.out.Top = append(h.out.Top, r.top)
		}
	}
	h.out.Reason = reason // with the token, so that its event tells
	if r.sampled {
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}
}

// finish ends the request; replica.end sees to it that this happens once.
func (h *Handle) finish(reason FinishReason, err error) {
	h.mu.Lock()
	h.out.Usage.CachedTokens = h.seq.NumCached()
	h.out.Reason, h.err = reason, err
	h.out.Timing.Done = time.Now()
	h.mu.Unlock()
	close(h.done)
}
