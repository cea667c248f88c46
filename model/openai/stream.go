package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"capgpu/model/lm"
)

// events writes server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). The status is
// sent with the first event, so that an earlier failure has a status of its own.
// While nothing comes, a comment is sent from time to time: proxies and clients see
// that the server is alive, and the server sees whether they are.
type events struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	every   time.Duration // a comment
	timeout time.Duration // of a write
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	begun   bool         // +checklocks:mu
	closed  bool         // +checklocks:mu
	err     error        // +checklocks:mu
	pending bytes.Buffer // +checklocks:mu
	alarm   *time.Timer  // +checklocks:mu
}

func (a *api) newEvents(w http.ResponseWriter, cancel context.CancelCauseFunc) *events {
	e := &events{w: w, rc: http.NewResponseController(w), every: a.o.KeepAlive, timeout: a.o.WriteTimeout, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alarm = time.AfterFunc(e.every, e.quiet)
	return e
}

// quiet is called when nothing has been sent for a while.
func (e *events) quiet() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.pending.WriteString(": waiting\n\n")
	if err := e.flushLocked(); err != nil {
		e.cancel(err)
	}
}

// send writes each value as one event. It flushes at once if that is little.
func (e *events) send(values ...any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, v := range values {
		e.pending.WriteString("data: ")
		if text, ok := v.(string); ok { // [DONE], which is no JSON
			e.pending.WriteString(text)
			e.pending.WriteByte('\n')
		} else if err := encode(&e.pending, v); err != nil { // ends with a newline, and has no other
			e.pending.Reset()
			return err
		}
		e.pending.WriteByte('\n')
		if e.pending.Len() >= smallBytes { // tokens with many long alternatives
			if err := e.flushLocked(); err != nil {
				return err
			}
		}
	}

	return e.flushLocked()
}

// +checklocks:e.mu
func (e *events) flushLocked() error {
	if e.err != nil || e.closed {
		return e.err
	}

	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("X-Accel-Buffering", "no") // proxies would gather it
		e.w.WriteHeader(http.StatusOK)
	}

	_ = e.rc.SetWriteDeadline(time.Now().Add(e.timeout))
	_, err := e.w.Write(e.pending.Bytes())
	e.pending.Reset()
	if err == nil {
		err = e.rc.Flush()
	}

	e.err = err
	e.alarm.Reset(e.every)
	return err
}

// end is the last write. It reports whether anything was sent; if so, and p is not
// nil, p is the last event.
func (e *events) end(p *problem) (begun bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p != nil && e.begun && !e.closed {
		e.pending.WriteString("data: ")
		if encode(&e.pending, map[string]*problem{"error": p}) == nil {
			e.pending.WriteByte('\n')
			_ = e.flushLocked() // nobody is left to inform
		}
	}
	e.closed = true
	e.alarm.Stop()
	return e.begun
}

func encode(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// streamed answers with events as tokens come.
func (a *api) streamed(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter, r *http.Request, q *common, choices []*choice, s shape) {
	e := a.newEvents(w, cancel)
	_, part := s.heads()
	chunk := func(choice any) any {
		b := body{head: part, Choices: []any{choice}}
		if q.includeUsage {
			b.Usage = json.RawMessage("null")
		}
		return b
	}

	opened := make([]bool, len(choices)) // each element belongs to its choice's goroutine
	opening := func(c *choice) (first []any) {
		if o := s.opening(c); o != nil && !opened[c.index] {
			first = []any{chunk(o)}
		}
		opened[c.index] = true
		return first
	}

	err := a.all(ctx, cancel, choices, func(c *choice, tokens []lm.Token) error {
		out := opening(c)
		for _, t := range tokens {
			if t.Text != "" || s.reportsTokens() {
				out = append(out, chunk(s.chunk(c, t)))
			}
		}
		if c.finish != lm.Unfinished {
			out = append(out, chunk(s.closing(c)))
		}
		if len(out) == 0 {
			return nil
		}
		return e.send(out...)
	})
	if err == nil {
		var last []any
		if q.includeUsage {
			u, t := sum(choices)
			last = append(last, body{head: part, Choices: []any{}, Usage: u, Timings: t})
		}
		if err = e.send(append(last, "[DONE]")...); err == nil {
			e.end(nil)
			return
		}
	}

	p := problemOf(err)
	if e.end(p) { // without [DONE], so that nobody takes it for whole
		a.note(r, p)
	} else {
		a.fail(w, r, p)
	}
}
