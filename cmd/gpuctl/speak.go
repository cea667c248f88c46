package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/llama"
	"capgpu/model/lm"
	"capgpu/model/load"
	"capgpu/model/rpc"
	"capgpu/model/sample"
	"capgpu/model/server"
)

// speakArgs choose a model and its sampling, shared by "generate" and "chat".
type speakArgs struct {
	Model     string   `help:"Model file to load into a session of this tenant: GGUF, a llama2.c .bin, or a folder of Hugging Face." placeholder:"FILE" short:"m" xor:"model"`
	Server    string   `help:"Socket of a running model-server instead (its --rpc). Default: $$CAPGPU_MODEL_SERVER." placeholder:"PATH" xor:"model"`
	Tokenizer string   `help:"Tokenizer of a llama2.c model. Default: tokenizer.bin, or tok and the size of the vocabulary, beside it." placeholder:"FILE"`
	Context   int      `help:"Positions of prompt and answer together. Default: the model's." placeholder:"N"`
	Device    string   `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
	MaxTokens int      `help:"Most tokens of an answer. Default: as many as there is room for." short:"n" placeholder:"N"`
	TopK      int      `help:"Choose among the N most likely tokens." placeholder:"N"`
	TopP      float32  `help:"Choose among the fewest tokens whose probabilities make P." placeholder:"P"`
	MinP      float32  `help:"Choose among tokens at least P times as likely as the most likely." placeholder:"P"`
	Penalty   float32  `help:"Divide the logits of recent tokens by X: above 1 there is less repetition." name:"repetition-penalty" placeholder:"X"`
	Seed      string   `help:"The same seed gives the same answer. Default: another one each time." placeholder:"N"`
	Stop      []string `help:"End the answer before TEXT. Repeat for more." placeholder:"TEXT" sep:"none"`
	Quiet     bool     `help:"Print the text alone, no speed." short:"q"`
	Progress  bool     `help:"Report progress on standard error even if it is no terminal."`
}

// sampling checks the parameters before anything is loaded.
func (s *speakArgs) sampling(temperature float32) (sample.Params, error) {
	p := sample.Params{Temperature: temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, Repetition: s.Penalty}
	if s.Seed != "" {
		n, err := strconv.ParseUint(s.Seed, 0, 64)
		if err != nil {
			return p, usagef("--seed %q: write a number from 0 to 2⁶⁴-1", s.Seed)
		}
		p.Seed, p.Seeded = n, true
	}
	if s.MaxTokens < 0 {
		return p, usagef("--max-tokens %d: write a number above 0", s.MaxTokens)
	}
	if s.Context < 0 {
		return p, usagef("--context %d: write a number above 0", s.Context)
	}
	return p, nil
}

// speaker is a model, and the function to close it.
type speaker struct {
	lm.Model
	begun func() // an answer begins: nothing else may be on the terminal
	// failed is closed when the model is lost; reason returns why.
	failed <-chan struct{}
	reason func() error
	close  func()
}

// speaker finds the model that the arguments name.
func (a *app) speaker(ctx context.Context, s *speakArgs) (*speaker, error) {
	if s.Model == "" && s.Server == "" {
		s.Server = a.getenv("CAPGPU_MODEL_SERVER")
	}
	switch {
	case s.Model != "":
		return a.loadHere(ctx, s)
	case s.Server != "":
		c, err := rpc.Dial(ctx, s.Server)
		if err != nil {
			return nil, &dialError{path: s.Server, err: err, whom: toModelServer}
		}
		return &speaker{Model: c, begun: func() {}, close: func() { c.Close() }}, nil
	}
	return nil, &hinted{usagef("name a model file with --model, or a running server with --server"),
		`"gpuctl generate --help" has examples.`}
}

// loadHere serves a model in this process, in a session of the tenant.
func (a *app) loadHere(ctx context.Context, s *speakArgs) (*speaker, error) {
	file, err := load.OpenWith(s.Model, load.Options{Tokenizer: s.Tokenizer})
	if err != nil {
		return nil, err
	}

	conn, err := a.dial(ctx)
	if err == nil {
		var d client.DeviceInfo
		if d, err = chooseDevice(ctx, conn, s.Device); err == nil {
			m, e := a.serveHere(ctx, s, file, d.Index)
			conn.Close()
			if e == nil {
				return m, nil
			}
			err = e
		} else {
			conn.Close()
		}
	}

	return nil, errors.Join(err, file.Close())
}

func (a *app) serveHere(ctx context.Context, s *speakArgs, file *model.File, device uint32) (*speaker, error) {
	p := &progress{w: a.err, on: a.errIsTerm || s.Progress, term: a.errIsTerm, now: a.now}
	p.start()
	m, err := server.New(server.Options{
		Dial: a.dial, Device: device, File: file,
		Llama:    llama.Options{Sequences: 1, Context: s.Context},
		Progress: func(done, total uint64) { p.bytes("loading "+file.Name, done, total) },
		Log:      slog.New(slog.DiscardHandler), // the returned errors report failures
	})
	if err != nil {
		return nil, err
	}

	ended := make(chan struct{})
	var why error
	go func() {
		defer close(ended)
		why = m.Run(context.WithoutCancel(ctx))
	}()

	here := &speaker{
		Model: m, begun: p.clear, failed: ended,
		reason: func() error { <-ended; return why },
		close: func() {
			p.clear()
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
			defer cancel()
			if m.Close(closing) == nil {
				_ = file.Close() // read only
			}
		},
	}

	if err := m.Await(ctx); err != nil {
		here.close()
		return nil, err
	}

	return here, nil
}

// spokenAnswer is an answer and its cost, as JSON shows it.
type spokenAnswer struct {
	Text   string  `json:"text"`
	Finish string  `json:"finish"`
	Usage  sayings `json:"usage"`
}

type sayings struct {
	PromptTokens     int     `json:"promptTokens"`
	CompletionTokens int     `json:"completionTokens"`
	QueuedNanos      int64   `json:"queuedNanos"`
	PrefillNanos     int64   `json:"prefillNanos"`
	DecodeNanos      int64   `json:"decodeNanos"`
	DeviceNanos      int64   `json:"deviceNanos"`
	TokensPerSecond  float64 `json:"tokensPerSecond"`
}

// speak streams an answer to w, and returns it whole. With trim it drops the
// leading spaces, with which many vocabularies begin a word. begun is called before
// the first text.
func (a *app) speak(ctx context.Context, m *speaker, q lm.Request, w io.Writer, trim bool, begun func()) (*spokenAnswer, error) {
	stream, err := m.Generate(ctx, q)
	if err != nil {
		return nil, m.because(err)
	}
	defer stream.Close()

	var text strings.Builder
	tokens := make([]lm.Token, 64)
	for {
		n, err := stream.Next(ctx, tokens)
		if n > 0 && text.Len() == 0 {
			begun()
		}

		for _, t := range tokens[:n] {
			if trim && text.Len() == 0 {
				t.Text = strings.TrimLeft(t.Text, " ")
			}
			text.WriteString(t.Text)
			io.WriteString(w, spoken(t.Text)) // nobody is left to learn that standard output is gone
		}

		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			begun()
			return nil, m.because(err)
		}
	}

	begun()
	u := stream.Usage()
	r := &spokenAnswer{Text: text.String(), Finish: stream.Finish().String(), Usage: sayings{
		PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, QueuedNanos: u.Queued.Nanoseconds(),
		PrefillNanos: u.Prefill.Nanoseconds(), DecodeNanos: u.Decode.Nanoseconds(), DeviceNanos: u.DeviceTime.Nanoseconds(),
	}}

	if u.Decode > 0 {
		r.Usage.TokensPerSecond = float64(max(u.CompletionTokens-1, 0)) / u.Decode.Seconds()
	}

	return r, nil
}

// because is the reason of the model's end, if it has ended; otherwise err.
func (m *speaker) because(err error) error {
	if m.failed == nil || !errors.Is(err, gpuerr.Closed) {
		return err
	}
	select {
	case <-m.failed:
		if why := m.reason(); why != nil {
			return why
		}
	case <-time.After(time.Second): // the server reports its end a moment before it ends
	}
	return err
}

// spoken is text that is safe for a terminal: lines and tabs stay, control
// sequences do not.
func spoken(s string) string {
	var b strings.Builder
	for i, line := range strings.Split(s, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, cell := range strings.Split(line, "\t") {
			if j > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(visible(cell))
		}
	}
	return b.String()
}

// summary is one line about an answer.
func (r *spokenAnswer) summary() string {
	u := r.Usage
	line := fmt.Sprintf("%d tokens", u.CompletionTokens)
	if u.TokensPerSecond > 0 {
		line += fmt.Sprintf(", %.0f tokens/s", u.TokensPerSecond)
	}
	line += fmt.Sprintf("; prompt of %d in %s", u.PromptTokens, durationText(time.Duration(u.PrefillNanos)))
	if r.Finish == lm.Length.String() {
		line += "; ended by its length"
	}
	return line
}

// readPrompt is the argument, or standard input for "-".
func (a *app) readPrompt(prompt string) (string, error) {
	if prompt != "-" {
		return prompt, nil
	}
	const most = 1 << 20
	b, err := io.ReadAll(io.LimitReader(a.in, most+1))
	if err != nil {
		return "", gpuerr.New(gpuerr.IO, "standard input: %v", err)
	}
	if len(b) > most {
		return "", usagef("the prompt on standard input is longer than %s", bytesText(most))
	}
	return string(b), nil
}

// answer is the part of a command that Ctrl-C stops first.
type answer struct {
	mu   sync.Mutex
	stop context.CancelFunc // +checklocks:mu
}

// begin returns a context that interrupt ends.
func (n *answer) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	n.mu.Lock()
	n.stop = cancel
	n.mu.Unlock()
	return ctx, func() {
		n.mu.Lock()
		n.stop = nil
		n.mu.Unlock()
		cancel()
	}
}

// interrupt ends the current answer, if there is one.
func (n *answer) interrupt() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stop == nil {
		return false
	}
	n.stop()
	n.stop = nil
	return true
}
