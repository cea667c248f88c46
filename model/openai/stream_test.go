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

func post(ctx context.Context, t testing.TB, c *http.Client, path, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", "http://localhost"+path, strings.NewReader(body))
	require.NoError(t, err)
	return c.Do(r)
}

// TestClientGoes: a client that hangs up, early or late, streaming or not, leaves
// nothing running, and no time has to pass for it.
func TestClientGoes(t *testing.T) {
	for _, c := range []struct {
		path, body string
		tokens     int // that came before
	}{
		{"/v1/completions", `{"prompt":"b a","stream":true,"n":2}`, 0},
		{"/v1/completions", `{"prompt":"b a","stream":true}`, 2},
		{"/v1/completions", `{"prompt":"b a","n":3}`, 0},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"stream":true}`, 1},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, 5},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, let := paced()
				_, client := serve(t, New(m, Options{}))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					r, err := post(ctx, t, client, c.path, c.body)
					if err == nil {
						_, err = io.Copy(io.Discard, r.Body)
						r.Body.Close()
					}
					done <- err
				}()

				for range c.tokens {
					let <- struct{}{}
				}

				synctest.Wait()
				require.Positive(t, m.Open())
				began := time.Now()
				cancel()
				synctest.Wait()
				require.Zero(t, m.Open())
				require.Zero(t, time.Since(began))
				require.ErrorIs(t, <-done, context.Canceled)
			})
		})
	}
}

// TestSlowReader: a client that reads nothing stops its own answer after the write
// timeout.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := lmtest.New()
		p, _ := serve(t, New(m, Options{WriteTimeout: 5 * time.Second}))
		conn, err := p.dial(t.Context(), "", "")
		require.NoError(t, err)
		defer conn.Close()

		const body = `{"prompt":"b a","stream":true,"max_tokens":4000}`
		_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 1, m.Open())
		began := time.Now()
		_, err = bufio.NewReader(eofAfter{conn, 6 * time.Second}).ReadString(0)
		require.Error(t, err)
		synctest.Wait()
		require.Zero(t, m.Open())
		require.Equal(t, 6*time.Second, time.Since(began))
	})
}

// The same is true of one that stopped to read before the next token came, and of
// one that does not read a page or the metrics.
func TestSlowReaderOfLittle(t *testing.T) {
	const question = `{"prompt":"b a","stream":true}`
	for _, request := range []string{
		fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(question), question),
		"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := paced()
			p, _ := serve(t, New(m, Options{WriteTimeout: 5 * time.Second, KeepAlive: 2 * time.Second}))
			conn, err := p.dial(t.Context(), "", "")
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, request)
			require.NoError(t, err)
			began := time.Now()
			time.Sleep(8 * time.Second)
			synctest.Wait()
			require.Zero(t, m.Open())
			_, err = io.Copy(io.Discard, conn)
			require.NoError(t, err)
			require.Equal(t, 8*time.Second, time.Since(began), "it was closed")
		})
	}
}

// eofAfter reads nothing for a while.
type eofAfter struct {
	net.Conn
	wait time.Duration
}

func (c eofAfter) Read(b []byte) (int, error) {
	time.Sleep(c.wait) // of the bubble's clock
	return c.Conn.Read(b)
}

// TestSlowBody: a body that does not come ends the request.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := serve(t, New(lmtest.New(), Options{BodyTimeout: 3 * time.Second}))
		conn, err := p.dial(t.Context(), "", "")
		require.NoError(t, err)
		defer conn.Close()
		began := time.Now()
		_, err = fmt.Fprint(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestTimeout, r.StatusCode)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

// An unwanted body ends its request as well.
func TestUnwantedBody(t *testing.T) {
	for _, line := range []string{"GET /healthz", "GET /", "POST /nothing", "POST /v1/completions"} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := serve(t, New(lmtest.New(), Options{Token: "t", BodyTimeout: 3 * time.Second}))
			conn, err := p.dial(t.Context(), "", "")
			require.NoError(t, err)
			defer conn.Close()
			began := time.Now()
			_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", line)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, conn)
			require.NoError(t, err, "it is closed")
			require.LessOrEqual(t, time.Since(began), 4*time.Second)
		})
	}
}

// A peer has its share of the memory for large bodies, by their announced or
// possible size; small ones are always read.
func TestLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(lmtest.New(), Options{})
		send := func(peer string, body io.Reader) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "http://localhost/v1/completions", body)
			r = r.WithContext(lm.WithAsker(r.Context(), lm.Asker{Peer: peer}))
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}

		var pipes []*io.PipeWriter
		const most = maxLarge * 3 / 4
		done := make(chan *httptest.ResponseRecorder, most)
		for range most {
			r, w := io.Pipe()
			pipes = append(pipes, w)
			go func() { done <- send("a", r) }()
			_, err := io.WriteString(w, `{"prompt":"`+strings.Repeat(" ", smallBytes))
			require.NoError(t, err)
		}

		synctest.Wait()
		big := `{"user":"x","prompt":"` + strings.Repeat(" ", smallBytes) + `"}`
		endless := func() io.Reader { return io.MultiReader(strings.NewReader(big)) } // its length is not announced
		w := send("a", endless())
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Equal(t, "E_BUSY", problemIn(t, w).Code)
		require.Equal(t, http.StatusOK, send("a", strings.NewReader(`{}`)).Code)
		require.Equal(t, "prompt", *problemIn(t, send("b", endless())).Param, "another is read; it is too long for the model")
		for _, p := range pipes {
			_, err := io.WriteString(p, `","max_tokens":0}`)
			require.NoError(t, err)
			require.NoError(t, p.Close())
		}

		for range most {
			require.Equal(t, "max_tokens", *problemIn(t, <-done).Param)
		}

		require.Equal(t, "prompt", *problemIn(t, send("a", endless())).Param, "its place was free; it is too long for the model")
	})
}

// A connection without a request's header ends, also after an answer, and also if
// the header comes a byte at a time.
func TestSlowHeader(t *testing.T) {
	const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		said  string
		slow  string // a byte of it each second
		after time.Duration
	}{
		"nothing":            {"", "", headerTimeout},
		"half a header":      {request[:20], "", headerTimeout},
		"a slow header":      {request[:20], strings.Repeat("x", 99), headerTimeout},
		"nothing any more":   {request, "", idleTimeout},
		"half of the second": {request + request[:20], strings.Repeat("x", 99), headerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := serve(t, New(lmtest.New(), Options{}))
				conn, err := p.dial(t.Context(), "", "")
				require.NoError(t, err)
				began := time.Now()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					_, err := io.WriteString(conn, c.said)
					for i := 0; i < len(c.slow) && err == nil; i++ {
						time.Sleep(time.Second)
						_, err = io.WriteString(conn, c.slow[i:i+1])
					}
				}()

				_, err = io.Copy(io.Discard, conn)
				require.NoError(t, err)
				require.Equal(t, c.after, time.Since(began))
				require.NoError(t, conn.Close())
				<-sent
			})
		})
	}
}

// TestLongAnswer: the request's deadlines do not apply to the answer.
func TestLongAnswer(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, let := paced()
			_, client := serve(t, New(m, Options{KeepAlive: 7 * time.Second}))
			go func() {
				for range 3 {
					time.Sleep(time.Hour)
					let <- struct{}{}
				}
			}()

			r, err := post(t.Context(), t, client, "/v1/completions", fmt.Sprintf(`{"prompt":"b a","stream":%v,"max_tokens":3}`, stream))
			require.NoError(t, err)
			defer r.Body.Close()
			require.Equal(t, 200, r.StatusCode)
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Contains(t, string(text), `"finish_reason":"length"`)
			if stream {
				require.Equal(t, 3*(3600/7), strings.Count(string(text), ": waiting\n\n"), "one each 7 s")
			}

			// The connection is as good as before.
			r, err = client.Get("http://localhost/healthz")
			require.NoError(t, err)
			require.Equal(t, 200, r.StatusCode)
			require.NoError(t, r.Body.Close())
		})
	}
}

// TestFailures: before the first token an error has a status, whether a stream was
// asked for or not. If one of several choices fails, all end.
func TestFailures(t *testing.T) {
	m := lmtest.New()
	m.Failure = gpuerr.New(gpuerr.Disconnected, "the driver went")
	h := New(m, Options{})
	for _, body := range []string{`{"stream":true}`, `{"stream":true,"n":4}`, `{}`, `{"n":4}`} {
		w := call(h, "POST", "/v1/completions", body)
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "E_DISCONNECTED", problemIn(t, w).Code)
		require.Equal(t, "2", w.Header().Get("Retry-After"))
		require.Zero(t, m.Open())
	}

	// If a request in the middle is refused, those before it are cancelled.
	m.Failure = nil
	asked := 0
	m.Refuse = func(lm.Request) error {
		if asked++; asked == 3 {
			return gpuerr.New(gpuerr.Busy, "2 requests wait")
		}
		return nil
	}

	w := call(h, "POST", "/v1/completions", `{"n":4}`)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, 3, asked)
	require.Zero(t, m.Open())
}

// If a model reports an answer as cancelled, though nobody cancelled it, the answer
// is not whole.
func TestCutShort(t *testing.T) {
	w := call(New(cutShort{lmtest.New()}, Options{}), "POST", "/v1/completions", `{"stream":true}`)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "E_CLOSED", problemIn(t, w).Code)
}

type cutShort struct{ *lmtest.Model }

func (m cutShort) Generate(_ context.Context, r lm.Request) (lm.Stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return m.Model.Generate(ctx, r)
}
