package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// newTestAPI names answers 1, 2, …
func newTestAPI(m lm.Model, o Options) *api {
	a := newAPI(m, o)
	a.newID = func() string { return "1" }
	return a
}

// call calls a handler without a network. The host is a loopback name.
func call(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:8080"
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// problemIn is the error in an answer.
func problemIn(t testing.TB, w *httptest.ResponseRecorder) problem {
	t.Helper()
	var body struct{ Error problem }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), w.Body.String())
	require.NotEmpty(t, body.Error.Code, w.Body.String())
	require.NotEmpty(t, body.Error.Type)
	require.NotEmpty(t, body.Error.Message)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return body.Error
}

// pipes is a listener for connections by pipes in memory, so that synctest sees
// everything that waits.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// serve runs a whole server on pipes, for a test in a synctest bubble.
func serve(t *testing.T, h http.Handler) (p *pipes, client *http.Client) {
	t.Helper()
	p = newPipes()
	s := NewServer(h, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(p) }()
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return p, &http.Client{Transport: transport}
}

// eventsOf reads the data of a stream to its end.
func eventsOf(t testing.TB, r io.Reader) (data []string) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if d, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data = append(data, d)
		}
	}
	require.NoError(t, lines.Err())
	return data
}

// paced is a model that releases its tokens on request.
func paced() (m *lmtest.Model, let chan struct{}) {
	m, let = lmtest.New(), make(chan struct{})
	m.Pace = let
	return m, let
}
