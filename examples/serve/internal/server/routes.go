package server

import (
	"net/http"
	"slices"

	"github.com/weftgo/weft/examples/serve/internal/api"
	"github.com/weftgo/weft/examples/serve/internal/detok"
)

// routes are all that there is.
func (s *Server) routes() http.Handler {
	table := []struct {
		method, path string
		handle       http.HandlerFunc
	}{
		{"POST", "/v1/completions", s.completions},
		{"POST", "/v1/chat/completions", s.chats},
		{"GET", "/v1/models", s.models},
		{"GET", "/v1/models/{model...}", s.model},
		{"GET", "/health", s.healthy},
		{"GET", "/ping", s.healthy},
		{"POST", "/ping", s.healthy},
		{"GET", "/metrics", s.meter.handler.ServeHTTP},
		{"GET", "/version", s.version},
		{"GET", "/load", s.load},
		{"POST", "/tokenize", s.tokenize},
		{"POST", "/detokenize", s.detokenize},
		{"GET", "/status", s.status},
		{"GET", "/{$}", s.page},
	}
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, r := range table {
		mux.HandleFunc(r.method+" "+r.path, r.handle)
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, allowed := range methods {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			for _, m := range allowed {
				w.Header().Add("Allow", m)
			}
			s.fail(w, &api.Error{Status: http.StatusMethodNotAllowed, Message: r.Method + " is not allowed here; use " + allowed[0]})
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, &api.Error{Status: http.StatusNotFound, Message: "there is no " + r.URL.Path})
	})
	return mux
}

func (s *Server) healthy(w http.ResponseWriter, r *http.Request) {
	if err := s.health(); err != nil {
		s.fail(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	s.reply(w, http.StatusOK, map[string]string{"version": s.cfg.Version})
}

func (s *Server) load(w http.ResponseWriter, _ *http.Request) {
	s.reply(w, http.StatusOK, map[string]int{"server_load": s.queue.used()})
}

// card is a model in a list, with the fields that vLLM adds.
type card struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Root        string   `json:"root"`
	Parent      *string  `json:"parent"`
	MaxModelLen int      `json:"max_model_len"`
	Permission  []string `json:"permission"`
}

func (s *Server) card(name string) card {
	return card{ID: name, Object: "model", Created: s.created, OwnedBy: "weft", Root: s.cfg.Root, MaxModelLen: s.maxModelLen(), Permission: []string{}}
}

func (s *Server) maxModelLen() int { return s.cfg.Deployment.Config.MaxModelLen }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	list := struct {
		Object string `json:"object"`
		Data   []card `json:"data"`
	}{Object: "list"}
	for _, name := range s.cfg.Models {
		list.Data = append(list.Data, s.card(name))
	}
	s.reply(w, http.StatusOK, list)
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("model")
	if !slices.Contains(s.cfg.Models, name) {
		s.fail(w, &api.Error{Status: http.StatusNotFound, Param: "model", Message: "there is no model " + name})
		return
	}
	s.reply(w, http.StatusOK, s.card(name))
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.body(w, r)
	var q *api.Tokenize
	var done func()
	if bad == nil {
		done, bad = s.turn(r.Context(), len(body))
	}
	if bad == nil {
		defer done()
		q, bad = api.ParseTokenize(body, s.limits)
	}
	var text string
	switch {
	case bad != nil:
	case q.Chat != nil:
		text, bad = s.renderChat(q.Chat)
	default:
		text = q.Prompt
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	s.warn(q.Unknown)
	ids := s.cfg.Tokenizer.Encode(text)
	if ids == nil {
		ids = []int32{}
	}
	answer := struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int32  `json:"tokens"`
		Strings     []string `json:"token_strs"` // null unless asked for
	}{Count: len(ids), MaxModelLen: s.maxModelLen(), Tokens: ids}
	if q.TokenStrings {
		answer.Strings = []string{}
		for _, id := range ids {
			answer.Strings = append(answer.Strings, s.cfg.Tokenizer.Token(id))
		}
	}
	s.reply(w, http.StatusOK, answer)
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.body(w, r)
	var q *api.Detokenize
	if bad == nil {
		q, bad = api.ParseDetokenize(body, s.limits)
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	s.warn(q.Unknown)
	text, _ := detok.Split(s.cfg.Tokenizer, q.Tokens)
	s.reply(w, http.StatusOK, map[string]string{"prompt": text})
}
