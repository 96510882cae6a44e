package server

import (
	"context"
	"crypto/rand"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weftgo/weft/examples/serve/internal/api"
	"github.com/weftgo/weft/examples/serve/internal/detok"
)

// answer is a request under way: its choices, and what is the same in all that is sent for it.
type answer struct {
	server  *Server
	req     *api.Completion
	id      string
	created int64
	choices []*choice
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, api.ParseCompletion)
}

func (s *Server) chats(w http.ResponseWriter, r *http.Request) {
	s.generate(w, r, api.ParseChat)
}

// generate is both routes.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, parse func([]byte, api.Limits) (*api.Completion, *api.Error)) {
	if err := s.health(); err != nil { // before reading: it may be long
		s.fail(w, err)
		return
	}
	body, bad := s.body(w, r)
	if bad != nil {
		s.fail(w, bad)
		return
	}
	req, prompts, bad := s.read(r.Context(), body, parse)
	if bad != nil {
		s.fail(w, bad)
		return
	}
	n := len(prompts) * req.N
	if !s.queue.enter(n) {
		s.fail(w, &api.Error{Status: http.StatusServiceUnavailable, Message: "too many requests are waiting; try again later"})
		return
	}
	defer s.queue.leave(n)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // whatever is still under way in the engine ends here
	a, err := s.submit(ctx, req, prompts)
	if err != nil {
		s.fail(w, clientError(err))
		return
	}
	if req.Stream {
		a.stream(ctx, cancel, w)
	} else {
		a.whole(ctx, cancel, w)
	}
	cancel()
	for _, c := range a.choices {
		c.handle.Abort()
		s.meter.done(c)
	}
	s.meter.answered(a)
}

// read makes a request and the ids of its prompts of a body.
func (s *Server) read(ctx context.Context, body []byte, parse func([]byte, api.Limits) (*api.Completion, *api.Error)) (*api.Completion, [][]int32, *api.Error) {
	done, bad := s.turn(ctx, len(body))
	if bad != nil {
		return nil, nil, bad
	}
	defer done()
	req, bad := parse(body, s.limits)
	if bad != nil {
		return nil, nil, bad
	}
	s.warn(req.Unknown)
	prompts, bad := s.promptIDs(req)
	return req, prompts, bad
}

// warn logs fields that nobody knows, each name once.
func (s *Server) warn(unknown []string) {
	const most = 100 // names kept
	for _, name := range unknown {
		if len(name) > 100 || s.meter.unknown.Load() >= most {
			continue
		}
		if _, known := s.warned.LoadOrStore(name, true); !known {
			s.meter.unknown.Add(1)
			s.cfg.Log.Warn("a request has a field that this server does not know; it is ignored", "field", name)
		}
	}
}

// submit gives all choices to the engine. When one is refused, the caller ends ctx and with it the others.
func (s *Server) submit(ctx context.Context, req *api.Completion, prompts [][]int32) (*answer, error) {
	a := &answer{server: s, req: req, id: "cmpl-", created: time.Now().Unix()}
	if req.Chat != nil {
		a.id = "chatcmpl-"
	}
	if printable(req.RequestID) {
		a.id += req.RequestID
	} else {
		a.id += rand.Text()
	}
	stops := detok.Compile(req.Stop)
	for _, ids := range prompts {
		for i := range req.N {
			c := s.newChoice(req, stops, len(a.choices), ids)
			h, err := s.engine.Submit(ctx, s.engineRequest(req, ids, i))
			if err != nil {
				return nil, err
			}
			c.handle = h
			a.choices = append(a.choices, c)
		}
	}
	return a, nil
}

// run follows all choices to their ends and gives their pieces to sink, one at a time. The first error ends all choices.
func (a *answer) run(ctx context.Context, cancel context.CancelFunc, sink func(*choice, piece) error) error {
	count := func(c *choice, p piece) error {
		c.numTokens += len(p.ids)
		c.cached = p.cached
		return sink(c, p)
	}
	if len(a.choices) == 1 {
		return follow(ctx, a.choices[0], count)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for _, c := range a.choices {
		wg.Go(func() {
			err := follow(ctx, c, func(c *choice, p piece) error {
				mu.Lock()
				defer mu.Unlock()
				if first != nil {
					return first
				}
				return count(c, p)
			})
			if err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
				cancel()
			}
		})
	}
	wg.Wait()
	return first
}

// follow gives a choice's pieces to sink until the last. A panic ends the answer, not the server, and the client is told as of any error.
func follow(ctx context.Context, c *choice, sink func(*choice, piece) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.cfg.Log.Error("panic in an answer", "panic", p, "stack", string(debug.Stack()))
			err = &api.Error{Status: http.StatusInternalServerError, Message: "internal error"}
		}
	}()
	for {
		p, err := c.next(ctx)
		if err == nil {
			err = sink(c, p)
		}
		if err != nil || p.finish != "" {
			return err
		}
	}
}

// usage counts the tokens so far: each prompt once, whatever n is.
func (a *answer) usage() *api.Usage {
	u := &api.Usage{}
	for i, c := range a.choices {
		if i%a.req.N == 0 {
			u.PromptTokens += len(c.ids)
			u.Details.CachedTokens += c.cached
		}
		u.CompletionTokens += c.numTokens
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

func (a *answer) response(object string) *api.Response {
	model := a.req.Model
	if model == "" {
		model = a.server.cfg.Models[0]
	}
	return &api.Response{ID: a.id, Object: object, Created: a.created, Model: model, Choices: []api.Choice{}}
}
