package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// fat is a model with pieces of the largest size, which has all tokens at once.
type fat struct {
	*lmtest.Model
	open, sent atomic.Int64
}

var piece = strings.Repeat("\x01", 4000) + "é"

func (m *fat) Generate(_ context.Context, r lm.Request) (lm.Stream, error) {
	m.open.Add(1)
	return &fatStream{m: m, r: r}, nil
}

type fatStream struct {
	m    *fat
	r    lm.Request
	sent int
}

func (s *fatStream) Next(ctx context.Context, out []lm.Token) (n int, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if s.sent == s.r.MaxTokens {
		return 0, io.EOF
	}
	for ; n < len(out) && s.sent < s.r.MaxTokens; n++ {
		out[n] = lm.Token{ID: int32(s.sent), Text: piece}
		for i := range s.r.LogProbs {
			out[n].Top = append(out[n].Top, lm.Alternative{ID: int32(i), Text: []byte(piece)})
		}
		s.sent++
		s.m.sent.Add(1)
	}
	return n, nil
}

func (s *fatStream) Finish() lm.Finish { return lm.Length }
func (s *fatStream) Usage() lm.Usage   { return lm.Usage{CompletionTokens: s.sent} }
func (s *fatStream) Close() error      { s.m.open.Add(-1); return nil }

const fatChat = `{"n":%d,"max_tokens":%d,"logprobs":true,"top_logprobs":20,"messages":[{"role":"user","content":"a"}]%s}`

// An answer that would take too much memory is refused; a stream of it is not.
func TestAnswerTooLarge(t *testing.T) {
	m := &fat{Model: lmtest.New()}
	a := newTestAPI(m, Options{})
	h := a.handler()
	w := call(h, "POST", "/v1/chat/completions", fmt.Sprintf(fatChat, 8, 60, ""))
	require.Equal(t, http.StatusBadRequest, w.Code)
	p := problemIn(t, w)
	require.Equal(t, "E_INVALID", p.Code)
	require.Equal(t, "logprobs", *p.Param)
	require.Zero(t, m.open.Load())
	require.Less(t, m.sent.Load(), int64(8*60), "the rest was not asked for")
	require.Zero(t, a.gathering.Held(), "all is given back")

	w = call(h, "POST", "/v1/completions", `{"max_tokens":6000}`)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Equal(t, "max_tokens", *problemIn(t, w).Param)

	w = call(h, "POST", "/v1/chat/completions", fmt.Sprintf(fatChat, 2, 40, `,"stream":true`))
	require.Equal(t, http.StatusOK, w.Code)
	require.Len(t, eventsOf(t, large(w.Body)), 2*(1+40+1)+1)
	require.Zero(t, a.gathering.Held())
}

// large is a body with shortened lines, for a scanner.
func large(r io.Reader) io.Reader {
	all, _ := io.ReadAll(r)
	var out strings.Builder
	for line := range strings.Lines(string(all)) {
		out.WriteString(line[:min(len(line), 100)] + "\n")
	}
	return strings.NewReader(out.String())
}

// An answer that is written in parts is one object, with everything that was
// reported.
func TestWrittenInParts(t *testing.T) {
	m := &fat{Model: lmtest.New()}
	w := call(New(m, Options{}), "POST", "/v1/chat/completions", fmt.Sprintf(fatChat, 3, 4, ""))
	require.Equal(t, http.StatusOK, w.Code)
	var got struct {
		Object  string
		Choices []struct {
			Index    int
			Message  struct{ Content string }
			LogProbs struct {
				Content []struct {
					Bytes []int
					Top   []struct{ Token string } `json:"top_logprobs"`
				}
			}
		}
		Usage usage
	}

	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	require.Equal(t, "chat.completion", got.Object)
	require.Equal(t, 12, got.Usage.CompletionTokens)
	require.Len(t, got.Choices, 3)
	for i, c := range got.Choices {
		require.Equal(t, i, c.Index)
		require.Equal(t, strings.Repeat(piece, 4), c.Message.Content)
		require.Len(t, c.LogProbs.Content, 4)
		for _, token := range c.LogProbs.Content {
			var text []byte
			for _, b := range token.Bytes {
				text = append(text, byte(b))
			}
			require.Equal(t, piece, string(text))
			require.Len(t, token.Top, 20)
			require.Equal(t, piece, token.Top[19].Token)
		}
	}
}

// All answers that are not streamed share a bounded memory, and one peer has its
// share of it.
func TestAnswersTogether(t *testing.T) {
	a := newTestAPI(lmtest.New(), Options{MaxGatheredBytes: 100})
	h := a.handler()
	require.True(t, a.gathering.Take(97, "another"))
	w := call(h, "POST", "/v1/completions", `{"max_tokens":1}`)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "E_BUSY", problemIn(t, w).Code)
	require.EqualValues(t, 97, a.gathering.Held())
	require.Equal(t, http.StatusOK, call(h, "POST", "/v1/completions", `{"max_tokens":1,"stream":true}`).Code)
	a.gathering.Give(1, "another")
	require.Equal(t, http.StatusOK, call(h, "POST", "/v1/completions", `{"max_tokens":1}`).Code)
}

// Bytes as numbers, against encoding/json.
func TestByteList(t *testing.T) {
	var list byteList
	var ints []int
	for i := range 256 {
		list, ints = append(list, byte(i)), append(ints, i)
	}
	want, err := json.Marshal(ints)
	require.NoError(t, err)
	got, err := json.Marshal(list)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	got, err = json.Marshal(chatToken{})
	require.NoError(t, err)
	require.Contains(t, string(got), `"bytes":[]`)
}
