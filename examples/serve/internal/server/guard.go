package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weftgo/weft/examples/serve/internal/api"
)

// guard is what every request passes: panics become 500, the client's request id comes back, keys are checked.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.cfg.Log.Error("panic in a handler", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			s.fail(w, &api.Error{Status: http.StatusInternalServerError, Message: "internal error"})
		}()
		if id := r.Header.Get("X-Request-Id"); printable(id) {
			w.Header().Set("X-Request-Id", id)
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if s.locked(r.URL.Path) && !s.authorized(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.fail(w, &api.Error{Status: http.StatusUnauthorized, Message: "wrong or missing API key; send it as Authorization: Bearer KEY"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// locked says whether a route needs the key: all that reach the model or tell of it, not the ones that watch the server.
func (s *Server) locked(path string) bool {
	return s.cfg.APIKey != "" && (strings.HasPrefix(path, "/v1/") || path == "/tokenize" || path == "/detokenize")
}

// authorized compares the key in constant time, whatever its length.
func (s *Server) authorized(r *http.Request) bool {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 { // two could be read one way here and another way by what stands before the server
		return false
	}
	scheme, key, _ := strings.Cut(headers[0], " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	return subtle.ConstantTimeCompare(sum[:], s.keySum[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// printable says whether a client's request id may go into a header and a log.
func printable(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, r := range id {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return true
}

// body reads a request's body within the limits of size and time.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *api.Error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(s.cfg.ReadTimeout)) // not every writer has deadlines, as in tests
	bodies := &counted{r: http.MaxBytesReader(w, r.Body, s.cfg.MaxBodyBytes), sum: &s.bodies, limit: maxBodies * s.cfg.MaxBodyBytes}
	defer bodies.release()
	data, err := io.ReadAll(bodies)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // or it would look as if the client had left
	} else {
		w.Header().Set("Connection", "close") // nobody waits for the rest
	}
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, errManyBodies):
		return nil, &api.Error{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case errors.As(err, &large):
		return nil, &api.Error{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", s.cfg.MaxBodyBytes)}
	case err != nil:
		return nil, &api.Error{Status: http.StatusRequestTimeout, Message: fmt.Sprintf("reading the body: %v", err)}
	}
	return data, nil
}

// maxBodies is how many bodies of the largest size may be under way.
const maxBodies = 16

var errManyBodies = errors.New("too many large requests are being read; try again later")

// counted is a body whose bytes count, as they come, against a limit for all bodies together.
type counted struct {
	r          io.Reader
	sum        *atomic.Int64
	own, limit int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.own += int64(n)
	if c.sum.Add(int64(n)) > c.limit {
		return n, errManyBodies
	}
	return n, err
}

func (c *counted) release() { c.sum.Add(-c.own) }

// largeBody is from where on a body is read for its prompts one at a time: to make tokens of 16 MiB takes up to ten seconds of a core, most
// often only to find that they are too many, and ranks need the cores.
const largeBody = 256 << 10

// turn waits until a body of that size may be made tokens of; done ends the turn.
func (s *Server) turn(ctx context.Context, size int) (done func(), bad *api.Error) {
	if size < largeBody {
		return func() {}, nil
	}
	select {
	case s.large <- struct{}{}:
		return func() { <-s.large }, nil
	case <-ctx.Done():
		return nil, clientError(context.Cause(ctx))
	}
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, err *api.Error) {
	if err.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	s.reply(w, err.Status, err.Body())
}

// reply answers with JSON.
func (s *Server) reply(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		s.cfg.Log.Error("an answer that is no JSON", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"InternalServerError","param":null,"code":500}}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.cfg.WriteTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client may have left
}
