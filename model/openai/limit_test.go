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

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// TestLimit: the number of connections is bounded, and a peer has its share of
// them. A new one replaces the connection that has waited the longest for its
// client; if none waits, the new one has no place.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := Limit(p, 4).(*limited)
		accepted := make(chan *limitedConn, 200)
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

		dial := func() (server *limitedConn, client net.Conn) {
			client, err := p.dial(t.Context(), "", "")
			require.NoError(t, err)
			synctest.Wait()
			time.Sleep(time.Millisecond)
			if len(accepted) == 0 {
				return nil, client
			}
			return <-accepted, client
		}

		closed := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return err == io.EOF
		}

		a, _ := dial()
		b, atB := dial()
		c, atC := dial()
		watch(a, http.StateActive)
		watch(b, http.StateActive)
		watch(b, http.StateIdle) // so c is quiet for longer
		time.Sleep(time.Millisecond)
		d, atD := dial()
		require.True(t, closed(atC))
		require.False(t, closed(atB))
		e, _ := dial()
		require.True(t, closed(atB))
		watch(d, http.StateActive)
		watch(e, http.StateActive)
		f, _ := dial()
		require.ErrorIs(t, f.refused, gpuerr.Busy, "all are at work")
		watch(f, http.StateIdle) // it has no place to give
		for _, c := range []*limitedConn{b, c, f} {
			require.NoError(t, c.Close())
		}

		watch(d, http.StateIdle)
		watch(d, http.StateIdle)
		g, _ := dial()
		require.NoError(t, g.refused)
		require.True(t, closed(atD))
		watch(d, http.StateActive) // it has gone
		watch(g, http.StateActive)
		require.NoError(t, a.Close())
		require.NoError(t, a.Close(), "twice is once")
		h, _ := dial()
		require.NoError(t, h.refused)
		watch(h, http.StateActive)
		var refused []*limitedConn
		for {
			c, client := dial()
			if c == nil {
				require.True(t, closed(client), "of too many that are refused")
				break
			}
			require.Error(t, c.refused)
			refused = append(refused, c)
		}

		require.NoError(t, l.Close())
		<-done
		for _, c := range append(refused, d, e, g, h) {
			c.Close()
		}

		for range 4 {
			_, err := l.places.Take("new", func(error) {})
			require.NoError(t, err, "all places are free")
			if err != nil {
				break
			}
		}
	})
}

// limitedServer is a whole server with a limit of connections.
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

// Silent clients, and clients that do not finish a request, keep nobody out,
// however they do it; they do not cost the place of a client that is being
// answered.
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
				p := limitedServer(t, New(m, Options{MaxRequests: 4}), 4)
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

// A request takes no place before it has come whole.
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

// A body that stops coming ends after a while, also if most of it came at once; so
// does one that comes too slowly, however steadily.
func TestSlowLargeBody(t *testing.T) {
	whole := posted("/v1/completions", `{"metadata":"`+strings.Repeat(" ", 10*smallBytes)+`"}`)
	synctest.Test(t, func(t *testing.T) {
		p := limitedServer(t, New(lmtest.New(), Options{}), 4)
		c := say(t, p, whole[:9*smallBytes])
		began := time.Now()
		require.Equal(t, http.StatusRequestTimeout, answerOn(t, c).StatusCode)
		require.Equal(t, 5*time.Second, time.Since(began))
	})

	for rate, want := range map[int]int{minBodyRate * 9 / 10: http.StatusOK, minBodyRate / 4: http.StatusRequestTimeout} {
		synctest.Test(t, func(t *testing.T) {
			m := lmtest.New()
			p := limitedServer(t, New(m, Options{}), 4)
			c := say(t, p, "")
			began := time.Now()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for rest := whole; rest != ""; {
					n := min(len(rest), rate/10)
					if _, err := io.WriteString(c, rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
					time.Sleep(time.Second / 10)
				}
			}()

			require.Equal(t, want, answerOn(t, c).StatusCode)
			if want != http.StatusOK {
				require.Less(t, time.Since(began), 8*time.Second)
			}

			c.Close()
			<-sent
			time.Sleep(time.Second) // the server lingers
		})
	}
}

// A client without a place learns so, and what to do.
func TestRefusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, let := paced()
		p := limitedServer(t, New(m, Options{}), 2)
		answered := say(t, p, posted("/v1/completions", `{"max_tokens":1}`))
		r := answerOn(t, say(t, p, posted("/v1/completions", `{"max_tokens":1}`)))
		require.Equal(t, http.StatusTooManyRequests, r.StatusCode)
		require.Equal(t, "1", r.Header.Get("Retry-After"))
		require.True(t, r.Close)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Contains(t, string(body), `"code":"E_BUSY"`)
		require.Contains(t, string(body), "close one, or try again")
		go func() { let <- struct{}{} }()
		require.Equal(t, 200, answerOn(t, answered).StatusCode)
	})
}

// counted counts the tokenized texts.
type counted struct {
	*lmtest.Model
	texts  int
	askers []lm.Asker // of all calls
}

func (c *counted) Tokenize(ctx context.Context, text string) ([]int32, error) {
	c.texts++
	c.askers = append(c.askers, lm.AskerOf(ctx))
	return c.Model.Tokenize(ctx, text)
}

func (c *counted) Chat(ctx context.Context, messages []lm.Message) ([]int32, error) {
	c.askers = append(c.askers, lm.AskerOf(ctx))
	return c.Model.Chat(ctx, messages)
}

func (c *counted) Generate(ctx context.Context, r lm.Request) (lm.Stream, error) {
	c.askers = append(c.askers, lm.AskerOf(ctx))
	return c.Model.Generate(ctx, r)
}

func (c *counted) Embed(ctx context.Context, texts []string) ([][]float32, lm.Usage, error) {
	c.askers = append(c.askers, lm.AskerOf(ctx))
	return c.Model.Embed(ctx, texts)
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

// The asker is the peer, with the user that it names, wherever the model is called.
func TestAskers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &counted{Model: lmtest.New()}
		p := limitedServer(t, New(m, Options{}), 9)
		for i, path := range []string{"/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"} {
			body := fmt.Sprintf(`{"user":"%d","max_tokens":1,"n":2,"prompt":"a","messages":[{"role":"user","content":"a"}],"input":"a"}`, i%2)
			require.Equal(t, 200, answerOn(t, say(t, p, posted(path, body))).StatusCode)
		}

		one, two := lm.Asker{Peer: "unknown", User: "0"}, lm.Asker{Peer: "unknown", User: "1"}
		require.Equal(t, []lm.Asker{one, one, one, two, two, two, one, one, one, two}, m.askers)

		m.askers = nil
		for range 2 {
			require.Equal(t, 200, answerOn(t, say(t, p, posted("/v1/embeddings", `{"input":"a"}`))).StatusCode)
		}

		require.Equal(t, "unknown", m.askers[0].Peer)
		require.NotEmpty(t, m.askers[0].User)
		require.Equal(t, "unknown", m.askers[1].Peer)
		require.NotEqual(t, m.askers[0].User, m.askers[1].User, "connections that name nobody are users each")
	})
}

var _ lm.Model = (*counted)(nil)
