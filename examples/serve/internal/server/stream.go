package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/weftgo/weft/examples/serve/internal/api"
)

// events writes server-sent events. The headers go out with the first.
type events struct {
	server  *Server
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// send writes one event: its data is JSON, or a text as it is.
func (e *events) send(value any) error {
	data, ok := value.(string)
	if !ok {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		data = string(text)
	}
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	// A client that reads nothing is given up; its request must not hold blocks for ever.
	if err := e.control.SetWriteDeadline(time.Now().Add(e.server.cfg.WriteTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := e.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		return err
	}
	if err := e.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// stream sends a chunk for each token.
func (a *answer) stream(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter) {
	e := &events{server: a.server, w: w, control: http.NewResponseController(w)}
	object := api.ObjectCompletion
	if a.req.Chat != nil {
		object = api.ObjectChatChunk
	}
	begun := make([]bool, len(a.choices))
	err := a.run(ctx, cancel, func(c *choice, p piece) error {
		r := a.response(object)
		r.Choices = []api.Choice{a.choice(c.index, &p, false, !begun[c.index], r)}
		begun[c.index] = true
		if a.req.ContinuousUsage {
			r.Usage = a.usage()
		}
		return e.send(r)
	})
	if err == nil && a.req.IncludeUsage {
		r := a.response(object)
		r.Usage = a.usage()
		err = e.send(r)
	}
	switch {
	case err == nil:
		err = e.send("[DONE]")
	case e.begun:
		if sendErr := e.send(clientError(err).Body()); sendErr == nil {
			err = errors.Join(err, e.send("[DONE]"))
		}
	default:
		a.server.fail(w, clientError(err))
	}
	if err != nil {
		a.server.cfg.Log.Debug("a stream ended early", "id", a.id, "error", err)
	}
}
