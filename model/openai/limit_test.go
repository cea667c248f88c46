package openai

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// TestLimit: so many connections, and for the next one that goes which has waited the
// longest for its client; where none does, the next one waits.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := Limit(p, 3).(*limited)
		accepted := make(chan *limitedConn, 9)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c.(*limitedConn)
			}
		}()
		var ends []net.Conn
		dial := func() {
			c, err := p.dial(t.Context(), "", "")
			require.NoError(t, err)
			ends = append(ends, c)
			synctest.Wait()
		}
		for range 3 {
			dial()
		}
		a, b, c := <-accepted, <-accepted, <-accepted
		watch(a, http.StateActive)
		watch(b, http.StateActive)
		watch(b, http.StateIdle) // so c is quiet for longer
		dial()
		d := <-accepted
		require.True(t, c.gone)
		dial()
		e := <-accepted
		require.True(t, b.gone)
		watch(d, http.StateActive)
		watch(e, http.StateActive)
		dial()
		require.Empty(t, accepted, "all are at work")
		watch(d, http.StateIdle)
		synctest.Wait()
		f := <-accepted
		require.True(t, d.gone)
		watch(d, http.StateIdle)
		watch(f, http.StateActive)
		dial()
		require.Empty(t, accepted, "who has gone has no place to give")
		require.NoError(t, a.Close())
		require.Error(t, func() error { _, err := a.Read(make([]byte, 1)); return err }())
		_ = a.Close() // twice is once
		synctest.Wait()
		g := <-accepted
		watch(g, http.StateActive)
		require.Equal(t, 3, l.count)
		dial()
		require.NoError(t, l.Close())
		<-done
		for _, c := range append(ends, e, f, g) {
			c.Close()
		}
		require.Zero(t, l.count)
		require.Zero(t, l.quiet.Len())
	})
}

// limitedServer is a whole server that has so many connections at a time.
func limitedServer(t *testing.T, h http.Handler, connections int) *pipes {
	p := newPipes()
	s := NewServer(h, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(Limit(p, connections)) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return p
}

// say opens a connection and sends a request, or its beginning.
func say(t *testing.T, p *pipes, text string) net.Conn {
	c, err := p.dial(t.Context(), "", "")
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	synctest.Wait()
	return c
}

// posted is a request as it is sent.
func posted(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func answerOn(t *testing.T, c net.Conn) *http.Response {
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	return r
}

// Clients that say nothing, or not all, keep nobody out, however they do it; and they do
// not cost those their places that are being answered.
func TestSilentClients(t *testing.T) {
	for name, beginning := range map[string]string{
		"nothing":          "",
		"half a header":    "POST /v1/completions HTTP/1.1\r\nHost: lo",
		"half a body":      posted("/v1/completions", "{}")[:len(posted("/v1/completions", "{}"))-1],
		"a body for none":  "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
		"a body at a door": "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, let := paced()
				p := limitedServer(t, New(m, Options{MaxRequests: 2}), 3)
				asked := time.Now()
				answered := say(t, p, posted("/v1/completions", `{"max_tokens":1}`))
				for range 9 {
					say(t, p, beginning)
				}
				for range 3 {
					r := answerOn(t, say(t, p, posted("/v1/embeddings", `{"input":"a"}`)))
					require.Equal(t, 200, r.StatusCode)
				}
				require.Zero(t, time.Since(asked), "at once")
				go func() { let <- struct{}{} }()
				require.Equal(t, 200, answerOn(t, answered).StatusCode)
			})
		})
	}
}

// A request that has not come whole has no place among those that are served.
func TestSlowBodiesHoldNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(lmtest.New(), Options{MaxRequests: 1})
		body, slow := io.Pipe()
		done := make(chan int)
		go func() {
			r, err := http.NewRequest("POST", "http://localhost/v1/completions", body)
			require.NoError(t, err)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			done <- w.Code
		}()
		_, err := io.WriteString(slow, `{"max_tokens":1`)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"max_tokens":1}`).Code)
		_, err = io.WriteString(slow, `}`)
		require.NoError(t, err)
		require.NoError(t, slow.Close())
		require.Equal(t, 200, <-done)
	})
}

// A large body that stops coming gives its place up soon.
func TestSlowLargeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limitedServer(t, New(lmtest.New(), Options{}), 3)
		c := say(t, p, posted("/v1/completions", `{"prompt":"`+strings.Repeat(" ", 2*smallBytes))[:smallBytes*3/2])
		began := time.Now()
		require.Equal(t, http.StatusRequestTimeout, answerOn(t, c).StatusCode)
		require.Equal(t, largeTimeout, time.Since(began))
	})
}

// counted counts what is tokenized.
type counted struct {
	*lmtest.Model
	texts int
}

func (c *counted) Tokenize(ctx context.Context, text string) ([]int32, error) {
	c.texts++
	return c.Model.Tokenize(ctx, text)
}

// The tokens of a prompt are made once, however many answers it has.
func TestTokenizedOnce(t *testing.T) {
	m := &counted{Model: lmtest.New()}
	require.Equal(t, 200, call(New(m, Options{}), "POST", "/v1/completions", `{"prompt":["a b","c"],"n":5,"max_tokens":1}`).Code)
	require.Equal(t, 2, m.texts)
	for i, q := range m.Requests() {
		require.Empty(t, q.Prompt)
		require.Equal(t, lmtest.Tokens([]string{"a b", "c"}[i/5]), q.Tokens)
	}
	w := call(New(m, Options{}), "POST", "/v1/completions", `{"prompt":"`+strings.Repeat("a", 9000)+`","n":2}`)
	require.Equal(t, 400, w.Code)
	require.Equal(t, "prompt", *problemIn(t, w).Param)
}

// Turns are those of connections, whatever they say of their users.
func TestTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := lmtest.New()
		p := limitedServer(t, New(m, Options{}), 9)
		for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
			for range 2 {
				body := `{"user":"u","max_tokens":1,"messages":[{"role":"user","content":"a"}]}`
				require.Equal(t, 200, answerOn(t, say(t, p, posted(path, body))).StatusCode)
			}
		}
		tags := map[string]bool{}
		for _, q := range m.Requests() {
			require.Regexp(t, `^http\d+/u$`, q.Tag)
			tags[q.Tag] = true
		}
		require.Len(t, tags, 4)
	})
	w := call(New(lmtest.New(), Options{}), "POST", "/v1/completions", `{"user":"\u0000embed"}`)
	require.Equal(t, 400, w.Code)
	require.Equal(t, "user", *problemIn(t, w).Param)
}

var _ lm.Model = (*counted)(nil)
