package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

type chatCmd struct {
	System      string  `help:"What the model is told first." placeholder:"TEXT"`
	Temperature float32 `help:"0 takes the most likely token; higher is more varied." short:"t" default:"0.7"`
	speakArgs   `embed:""`
}

// Help is shown by "gpuctl chat --help".
func (chatCmd) Help() string {
	return `Talks with a language model, a line at a time, in its chat template.

  /clear   begins anew
  /help    shows these commands
  /quit    ends, as Ctrl-D does

Ctrl-C stops an answer; when there is none, it ends gpuctl. With --json each answer is one JSON value on a line of its own.`
}

// maxLine is the longest accepted line.
const maxLine = 1 << 20

func (c *chatCmd) Run(ctx context.Context, a *app) error {
	p, err := c.sampling(c.Temperature)
	if err != nil {
		return err
	}

	m, err := a.speaker(ctx, &c.speakArgs)
	if err != nil {
		return err
	}
	defer m.close()

	talk := &talk{app: a, cmd: c, model: m}
	talk.q = lm.Request{MaxTokens: c.MaxTokens, Sampling: p, Stop: append(c.Stop, m.Info().ChatStops...), LogProbs: -1}
	talk.clear()
	if !a.json && !c.Quiet {
		i := m.Info()
		fmt.Fprintf(a.err, "%s, %s parameters; /help tells the commands\n", visible(i.Name), countText(i.Parameters))
	}

	lines := a.lines(ctx)
	for {
		if !a.json {
			fmt.Fprint(a.out, "> ")
		}
		select {
		case line, ok := <-lines:
			if !ok || strings.TrimSpace(line.text) == "/quit" {
				if !a.json && line.err == nil && !ok {
					fmt.Fprintln(a.out)
				}
				return nil
			}
			if line.err != nil {
				return line.err
			}
			if err := talk.turn(ctx, line.text); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// line is one of standard input.
type line struct {
	text string
	err  error
}

// lines reads standard input until its end, or ctx's.
func (a *app) lines(ctx context.Context) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(a.in)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			select {
			case lines <- line{text: s.Text()}:
			case <-ctx.Done():
				return
			}
		}

		if err := s.Err(); err != nil {
			select {
			case lines <- line{err: gpuerr.New(gpuerr.IO, "standard input: %v", err)}:
			case <-ctx.Done():
			}
		}
	}()

	return lines
}

// talk is a conversation.
type talk struct {
	app      *app
	cmd      *chatCmd
	model    *speaker
	q        lm.Request
	messages []lm.Message
}

func (t *talk) clear() {
	t.messages = nil
	if t.cmd.System != "" {
		t.messages = append(t.messages, lm.Message{Role: "system", Content: t.cmd.System})
	}
}

// turn handles one line. Its error ends the conversation.
func (t *talk) turn(ctx context.Context, text string) error {
	a := t.app
	switch word := strings.TrimSpace(text); {
	case word == "":
		return nil
	case word == "/clear":
		t.clear()
		return nil
	case word == "/help":
		fmt.Fprintln(a.err, "/clear begins anew, /quit ends; Ctrl-C stops an answer")
		return nil
	case isCommand(word):
		fmt.Fprintf(a.err, "there is no command %s; /help tells those that there are\n", visible(word))
		return nil
	}

	asked := append(t.messages[:len(t.messages):len(t.messages)], lm.Message{Role: "user", Content: text})
	tokens, err := t.model.Chat(ctx, asked)
	if err != nil {
		return err
	}

	t.q.Tokens = tokens
	r, err := t.answer(ctx)
	switch {
	case err == nil:
		t.messages = append(asked, lm.Message{Role: "assistant", Content: r.Text})
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(a.err, "stopped; the question is forgotten")
		return nil
	case errors.Is(err, gpuerr.Closed), errors.Is(err, gpuerr.Revoked):
		return err
	}

	// The conversation continues: the context may be full, or the device may come
	// back.
	code := a.fail(ctx, err)
	if code == exitUsage {
		return err
	}

	return nil
}

// isCommand reports whether s is a slash and a word, and nothing else.
func isCommand(s string) bool {
	return len(s) > 1 && s[0] == '/' && !strings.ContainsFunc(s[1:], func(r rune) bool { return !unicode.IsLetter(r) })
}

// answer streams one answer, until Ctrl-C.
func (t *talk) answer(ctx context.Context) (*spokenAnswer, error) {
	a := t.app
	ctx, done := a.answering.begin(ctx)
	defer done()

	w := io.Writer(a.out)
	if a.json {
		w = io.Discard
	}

	r, err := a.speak(ctx, t.model, t.q, w, true, t.model.begun)
	if err != nil {
		if !a.json {
			fmt.Fprintln(a.out)
		}
		return nil, err
	}

	if a.json {
		a.printJSONLine(r)
		return r, nil
	}

	fmt.Fprintln(a.out)
	if !t.cmd.Quiet {
		fmt.Fprintf(a.err, "[%s]\n", r.summary())
	}

	return r, nil
}
