package rpc

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// fat is a model with long pieces that has all tokens at once.
type fat struct {
	*lmtest.Model
	piece string
	asked *atomic.Int64 // for at most this many tokens
}

func (m fat) Generate(context.Context, lm.Request) (lm.Stream, error) { return &fatStream{m: m}, nil }

const fatTokens = 300

type fatStream struct {
	m    fat
	sent int
}

func (s *fatStream) Next(_ context.Context, out []lm.Token) (n int, err error) {
	s.m.asked.Store(max(s.m.asked.Load(), int64(len(out))))
	if s.sent == fatTokens {
		return 0, io.EOF
	}
	for ; n < len(out) && s.sent < fatTokens; n++ {
		out[n] = lm.Token{ID: int32(s.sent), Text: s.m.piece}
		for i := range lm.MaxLogProbs {
			out[n].Top = append(out[n].Top, lm.Alternative{ID: int32(i), Text: []byte(s.m.piece)})
		}
		s.sent++
	}
	return n, nil
}

func (s *fatStream) Finish() lm.Finish { return lm.Length }
func (s *fatStream) Usage() lm.Usage   { return lm.Usage{CompletionTokens: s.sent} }
func (s *fatStream) Close() error      { return nil }

// No token is lost when several do not fit one message.
func TestFatTokens(t *testing.T) {
	for name, c := range map[string]struct{ bytes, logProbs int }{
		"as long as may be": {pieceBytes, lm.MaxLogProbs}, "beyond": {9 * 1024, lm.MaxLogProbs},
		"not even asked for": {600, -1}, "short": {1, lm.MaxLogProbs},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			path := filepath.Join(t.TempDir(), "m.sock")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			require.NoError(t, err)
			done := make(chan error)
			var asked atomic.Int64
			go func() { done <- Listen(ctx, l, fat{lmtest.New(), strings.Repeat("x", c.bytes), &asked}, Options{}) }()
			defer func() {
				stop()
				require.NoError(t, <-done)
			}()

			m, err := Dial(ctx, path)
			require.NoError(t, err)
			defer m.Close()
			s, err := m.Generate(ctx, lm.Request{Prompt: "a", LogProbs: c.logProbs})
			require.NoError(t, err)
			defer s.Close()

			out := make([]lm.Token, maxTokens)
			for want := 0; want < fatTokens; {
				waiting, cancel := context.WithTimeout(ctx, 20*time.Second)
				n, err := s.Next(waiting, out)
				cancel()
				require.NoError(t, err)
				for _, token := range out[:n] {
					require.EqualValues(t, want, token.ID)
					require.Len(t, token.Top, lm.MaxLogProbs)
					want++
				}
			}

			_, err = s.Next(ctx, out)
			require.ErrorIs(t, err, io.EOF)
			if c.logProbs > 0 {
				require.LessOrEqual(t, asked.Load()*(1+lm.MaxLogProbs)*pieceBytes, int64(maxNextBytes), "what is held back is little")
			}
		})
	}
}
