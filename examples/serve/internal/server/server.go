package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/examples/internal/chat"
	"github.com/weftgo/weft/examples/internal/deploy"
	"github.com/weftgo/weft/examples/internal/engine"
	"github.com/weftgo/weft/examples/internal/tokenizer"
	"github.com/weftgo/weft/examples/serve/internal/api"
	"github.com/weftgo/weft/trace"
)

// Config is what a server is made of.
type Config struct {
	Deployment *deploy.Deployment
	Recorder   *trace.Recorder      // the deployment's; nil leaves times per rank out
	Tokenizer  *tokenizer.Tokenizer // nil: ids in, ids out
	Template   *chat.Template       // nil: no chats
	Models     []string             // names of the model, the first of which is in answers
	Root       string               // where the model came from
	VocabSize  int
	APIKey     string // "" asks for none
	Version    string

	MaxLogprobs  int           // 0 means 20, which is the most
	MaxQueued    int           // choices that wait beyond those that run; 0 means 1024
	MaxBodyBytes int64         // 0 means 16 MiB
	ReadTimeout  time.Duration // for a whole body; 0 means 30 s
	WriteTimeout time.Duration // for one write to a client; 0 means 30 s
	Log          *slog.Logger  // nil is silent
}

func (c Config) withDefaults() Config {
	if c.MaxLogprobs == 0 {
		c.MaxLogprobs = engine.MaxTopLogprobs
	}
	if c.MaxQueued == 0 {
		c.MaxQueued = 1024
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 16 << 20
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = 30 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Server is the routes over one deployment. Any goroutine may call its methods.
type Server struct {
	cfg     Config
	engine  *engine.Engine
	limits  api.Limits
	keySum  [sha256.Size]byte
	created int64
	handler http.Handler
	meter   *meter

	background context.Context // for what is over already and needs no waiting
	draining   atomic.Bool
	queue      queue
	bodies     atomic.Int64  // bytes of bodies that are being read
	large      chan struct{} // holds the turn of a large body
	warned     sync.Map      // unknown fields that were logged
}

// New returns a server over a deployment, which stays the caller's.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	d := cfg.Deployment
	s := &Server{cfg: cfg, engine: d.Engine, created: time.Now().Unix(), large: make(chan struct{}, 1), background: context.Background(),
		keySum: sha256.Sum256([]byte(cfg.APIKey))}
	s.queue.limit = d.Config.MaxSeqs*d.Config.Layout.DP + cfg.MaxQueued
	const most = 1024 // choices of one request
	s.limits = api.Limits{Models: cfg.Models, VocabSize: cfg.VocabSize, MaxLogprobs: cfg.MaxLogprobs, Text: cfg.Tokenizer != nil,
		MaxModelLen: d.Config.MaxModelLen,
		MaxPrompts:  min(most, s.queue.limit), MaxChoices: min(most, s.queue.limit)}
	s.meter = newMeter(s)
	s.handler = s.guard(s.routes())
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Drain makes the server refuse new requests and report that it is not healthy. Those under way go on.
func (s *Server) Drain() { s.draining.Store(true) }

// Idle reports whether no request is under way.
func (s *Server) Idle() bool { return s.queue.used() == 0 }

// health says why the server cannot take requests; nil if it can.
func (s *Server) health() *api.Error {
	err := s.engine.Err()
	if err == nil {
		err = s.cfg.Deployment.World.Err()
	}
	switch {
	case err != nil:
		return &api.Error{Status: http.StatusServiceUnavailable, Message: "the engine is dead: " + err.Error()}
	case s.draining.Load():
		return &api.Error{Status: http.StatusServiceUnavailable, Message: "the server is shutting down"}
	}
	return nil
}

// clientError makes an error for the client of the engine's.
func clientError(err error) *api.Error {
	var known *api.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, engine.ErrInvalid):
		return api.BadRequest("", "%v", err)
	case errors.Is(err, engine.ErrDead), errors.Is(err, engine.ErrClosed):
		return &api.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &api.Error{Status: http.StatusServiceUnavailable, Message: "the request was aborted: " + err.Error()}
	}
	return &api.Error{Status: http.StatusInternalServerError, Message: err.Error()}
}

// queue bounds the choices that the server has taken on.
type queue struct {
	mu    sync.Mutex
	n     int
	limit int
}

func (q *queue) enter(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n+n > q.limit {
		return false
	}
	q.n += n
	return true
}

func (q *queue) leave(n int) {
	q.mu.Lock()
	q.n -= n
	q.mu.Unlock()
}

func (q *queue) used() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}
