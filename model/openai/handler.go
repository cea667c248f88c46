package openai

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/peers"
)

// api is the handler's state.
type api struct {
	m       lm.Model
	o       Options
	log     *slog.Logger
	guard   guard
	metrics *metrics
	newID   func() string

	slots     *peers.Shares // of requests that are being served
	bodies    *peers.Shares // bytes of large bodies that are being read
	gathering *peers.Shares // bytes of answers that are not streamed
}

// New serves m. NewServer makes a server for it with bounds of its own.
func New(m lm.Model, o Options) http.Handler { return newAPI(m, o).handler() }

func newAPI(m lm.Model, o Options) *api {
	o = o.withDefaults()
	return &api{
		m: m, o: o, log: o.Log, guard: newGuard(o.Token), metrics: newMetrics(m), newID: rand.Text,
		slots: peers.NewShares(int64(o.MaxRequests)), bodies: peers.NewShares(maxLarge * o.MaxBodyBytes), gathering: peers.NewShares(o.MaxGatheredBytes),
	}
}

func (a *api) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/completions", a.guarded(a.post(a.completions, false)))
	mux.Handle("POST /v1/chat/completions", a.guarded(a.post(a.chats, false)))
	mux.Handle("POST /v1/embeddings", a.guarded(a.post(a.embeddings, true)))
	mux.Handle("GET /v1/models", a.guarded(a.models))
	mux.Handle("GET /v1/models/{id...}", a.guarded(a.oneModel))
	mux.Handle("GET /v1/status", a.guarded(a.status))
	mux.Handle("GET /metrics", a.guarded(a.metrics.serve))
	mux.HandleFunc("GET /healthz", a.health)
	a.pages(mux)
	// The mux's own answers for unknown paths are no JSON.
	mux.HandleFunc("/", a.unknown)
	return a.outer(mux)
}

// outer wraps everything: headers of all answers, the check of origins, and the
// time that a client may take to read an answer.
func (a *api) outer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		began := time.Now()
		said := &recorder{ResponseWriter: w}
		defer func() {
			awaits(r.Context()) // for the unread rest of the request
			a.metrics.served(r.Pattern, said.status, time.Since(began))
			a.log.Debug("request", "method", r.Method, "path", r.URL.Path, "status", said.status, "took", time.Since(began))
		}()

		// This is for handlers that set no deadline of their own. The server reads
		// the rest of a body even if nobody wants it.
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(began.Add(a.o.BodyTimeout))
		_ = rc.SetWriteDeadline(began.Add(a.o.WriteTimeout))
		if c := connOf(r.Context()); c != nil && c.refused != nil {
			h.Set("Connection", "close")
			a.fail(said, r, c.refused)
			return
		}

		if err := a.guard.origin(r); err != nil {
			a.fail(said, r, err)
			return
		}

		next.ServeHTTP(said, r)
	})
}

// recorder remembers the status.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// guarded requires the token.
func (a *api) guarded(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.guard.token(r); err != nil {
			a.fail(w, r, err)
			return
		}
		next(w, r)
	})
}

// endpoint takes the object of a request, and converts its texts to tokens. The
// returned handler answers.
type endpoint func(ctx context.Context, f fields) (http.HandlerFunc, error)

// post serves a bounded number of requests at a time, and none before the model is
// known. A request takes its place only when it is there as a whole, so a client
// that sends slowly delays no other. texts means that answering needs the texts
// themselves, and so keeps the place of a large body.
func (a *api) post(take endpoint, texts bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s := a.m.Status(); s.State == lm.Loading {
			p := newProblem(http.StatusServiceUnavailable, typeUnavailable, gpuerr.Busy, "the model is being loaded")
			if s.Reason != "" {
				p.Message += ": " + s.Reason
			}
			p.retry = retryLost
			a.fail(w, r, p)
			return
		}

		answer, r, release, err := a.read(w, r, take)
		defer release()
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if !texts {
			release()
		}

		who := lm.AskerOf(r.Context())
		if !a.slots.Take(1, who.Peer, who.User) {
			a.fail(w, r, gpuerr.New(gpuerr.Busy, "of %d requests at a time %d are being served, and your share is taken; try again when one of yours has ended", a.slots.Most(), a.slots.Held()))
			return
		}
		defer a.slots.Give(1, who.Peer, who.User)

		answer(w, r)
	}
}

func (a *api) unknown(w http.ResponseWriter, r *http.Request) {
	status, format := http.StatusNotFound, "there is no %s %s here"
	if known := a.methodOf(r.URL.Path); known != "" && known != r.Method {
		w.Header().Set("Allow", known)
		status = http.StatusMethodNotAllowed
	}
	a.fail(w, r, newProblem(status, typeRequest, gpuerr.Unimplemented, format, clip(r.Method), clip(r.URL.Path)))
}

// methodOf is the method that a path takes; "" if there is no such path.
func (a *api) methodOf(path string) string {
	switch path {
	case "/v1/completions", "/v1/chat/completions", "/v1/embeddings":
		return http.MethodPost
	case "/", "/v1/models", "/v1/status", "/metrics", "/healthz":
		return http.MethodGet
	}
	if strings.HasPrefix(path, "/v1/models/") {
		return http.MethodGet
	}
	return ""
}

// writeJSON answers with v.
func (a *api) writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	var b bytes.Buffer
	if err := encode(&b, v); err != nil {
		a.log.Error("answer cannot be written", "path", r.URL.Path, "error", err)
		b.Reset()
		status = http.StatusInternalServerError
		_ = encode(&b, map[string]*problem{"error": newProblem(status, typeServer, gpuerr.Internal, "internal error; the server's log has it")})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.o.WriteTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that is gone needs no answer
}
