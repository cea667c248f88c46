package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"capgpu/gpuerr"
)

// problem is an error answer.
type problem struct {
	Message   string  `json:"message"`
	Type      string  `json:"type"`
	Param     *string `json:"param"`
	Code      string  `json:"code"` // of gpuerr
	Resource  string  `json:"resource,omitempty"`
	Asked     *uint64 `json:"asked,omitempty"`
	Available *uint64 `json:"available,omitempty"`

	status  int
	retry   time.Duration // when to try again; 0: never
	foreign error         // only for the log
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

// Types of errors, as OpenAI names them.
const (
	typeRequest     = "invalid_request_error"
	typeToken       = "authentication_error"
	typeDenied      = "permission_error"
	typeRate        = "rate_limit_error"
	typeUnavailable = "service_unavailable"
	typeServer      = "server_error"
)

func newProblem(status int, kind string, code gpuerr.Code, format string, args ...any) *problem {
	return &problem{status: status, Type: kind, Code: code.String(), Message: fmt.Sprintf(format, args...)}
}

// invalid reports a wrong field; "" is the whole body.
func invalid(param, format string, args ...any) *problem {
	p := newProblem(http.StatusBadRequest, typeRequest, gpuerr.Invalid, format, args...)
	return p.about(param)
}

// unsupported reports a field that would change the result, and that is not
// implemented.
func unsupported(param, format string, args ...any) *problem {
	p := newProblem(http.StatusBadRequest, typeRequest, gpuerr.Unimplemented, format, args...)
	return p.about(param)
}

func (p *problem) about(param string) *problem {
	if param != "" {
		p.Param = &param
		p.Message = param + ": " + p.Message
	}
	return p
}

// Retries: a busy server may be free in a moment; a driver or a model that restarts
// takes longer.
const (
	retryBusy = time.Second
	retryLost = 2 * time.Second
)

// problemOf translates an error of the model.
func problemOf(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &problem{status: http.StatusServiceUnavailable, Type: typeUnavailable, Code: gpuerr.Closed.String(), Message: "the request was cancelled", foreign: err}
	}

	e := gpuerr.From(err)
	p = &problem{Code: e.Code.String(), Message: e.Msg, Resource: e.Resource}
	if p.Message == "" {
		p.Message = e.Error()
	}
	if e.Code == gpuerr.Quota || e.Asked != 0 || e.Available != 0 {
		p.Asked, p.Available = &e.Asked, &e.Available
	}

	switch e.Code {
	case gpuerr.Invalid, gpuerr.LaunchLimit, gpuerr.Unimplemented:
		p.status, p.Type = http.StatusBadRequest, typeRequest
		if param, ok := paramOf(p.Message); ok {
			p.Param = &param
		}

	case gpuerr.Denied:
		p.status, p.Type = http.StatusForbidden, typeDenied
	case gpuerr.Quota, gpuerr.Busy, gpuerr.QueueFull, gpuerr.Banned:
		p.status, p.Type, p.retry = http.StatusTooManyRequests, typeRate, retryBusy

	case gpuerr.DeviceLost, gpuerr.Disconnected, gpuerr.NoDevice:
		p.status, p.Type, p.retry = http.StatusServiceUnavailable, typeUnavailable, retryLost
	case gpuerr.Revoked, gpuerr.Closed:
		p.status, p.Type = http.StatusServiceUnavailable, typeUnavailable

	case gpuerr.Poisoned, gpuerr.Stale:
		p.status, p.Type = http.StatusInternalServerError, typeServer
	default:
		// The text of an internal error may contain paths and peers.
		p = newProblem(http.StatusInternalServerError, typeServer, gpuerr.Internal, "internal error; the server's log has it")
	}

	if p.status == http.StatusInternalServerError {
		p.foreign = err
	}

	return p
}

// paramOf returns the field that our message begins with, in the API's spelling:
// "maxTokens: …" is about max_tokens.
func paramOf(message string) (string, bool) {
	for rest := message; ; {
		head, tail, ok := strings.Cut(rest, ": ")
		if !ok {
			return "", false
		}
		if !strings.HasPrefix(head, "E_") { // a wrapped error begins with its code
			return snake(head)
		}
		rest = tail
	}
}

var renamed = map[string]string{
	"repetition": "repetition_penalty", "presence": "presence_penalty", "frequency": "frequency_penalty",
	"bias": "logit_bias", "tokens": "prompt", "log_probs": "logprobs", "texts": "input",
}

func snake(name string) (string, bool) {
	var b strings.Builder
	lower := false
	for i, r := range name {
		switch {
		case r == ' ', r > unicode.MaxASCII, i > 64:
			return "", false
		case unicode.IsUpper(r) && lower:
			b.WriteByte('_')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}

	s := b.String()
	if better, ok := renamed[s]; ok {
		s = better
	}

	return s, s != ""
}

// fail answers with an error. Nothing may have been written before.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	a.note(r, p)
	h := w.Header()
	if p.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.retry+time.Second-1)/time.Second), 10))
	} else if p.status >= http.StatusInternalServerError || p.status == http.StatusTooManyRequests {
		h.Set("X-Should-Retry", "false") // by the status alone, the official clients would retry
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="capgpu"`)
	}
	a.writeJSON(w, r, p.status, map[string]*problem{"error": p})
}

// note logs errors that are not the client's mistake.
func (a *api) note(r *http.Request, p *problem) {
	if r.Context().Err() != nil || p.status < http.StatusInternalServerError {
		return
	}
	a.log.Warn("request failed", "path", r.URL.Path, "status", p.status, "code", p.Code, "error", p.Message, "cause", p.foreign)
}
