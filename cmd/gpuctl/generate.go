package main

import (
	"context"
	"fmt"
	"io"

	"capgpu/model/lm"
)

type generateCmd struct {
	Prompt      string  `arg:"" optional:"" help:"Text to go on with; - reads it from standard input. Without one the model begins by itself."`
	Temperature float32 `help:"0 takes the most likely token; higher is more varied." short:"t" default:"0"`
	IgnoreEnd   bool    `help:"Go on after the token that ends a text."`
	Echo        bool    `help:"Print the prompt, too."`
	speakArgs   `embed:""`
}

// Help is shown by "gpuctl generate --help".
func (generateCmd) Help() string {
	return `Goes on with a text, by a language model whose every operation runs on the device.

Examples:

  gpuctl generate --model stories.gguf "Once upon a time"

  gpuctl generate --server /run/capgpu/model.sock -t 0.8 -n 100 - < letter.txt

The text goes to standard output as it comes, its speed to standard error.`
}

func (c *generateCmd) Run(ctx context.Context, a *app) error {
	p, err := c.sampling(c.Temperature)
	if err != nil {
		return err
	}

	prompt, err := a.readPrompt(c.Prompt)
	if err != nil {
		return err
	}

	m, err := a.speaker(ctx, &c.speakArgs)
	if err != nil {
		return err
	}
	defer m.close()

	q := lm.Request{Prompt: prompt, MaxTokens: c.MaxTokens, Sampling: p, Stop: c.Stop, LogProbs: -1, IgnoreEnd: c.IgnoreEnd}
	w := a.out
	if a.json {
		w = io.Discard
	}

	r, err := a.speak(ctx, m, q, w, false, func() {
		m.begun()
		if c.Echo {
			fmt.Fprint(w, spoken(prompt))
			c.Echo = false
		}
	})
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(r)
		return nil
	}

	fmt.Fprintln(a.out)
	if !c.Quiet {
		fmt.Fprintf(a.err, "%s\n", r.summary())
	}

	return nil
}
