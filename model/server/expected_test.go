package server

import (
	"capgpu/model/lm"
	"capgpu/model/sample"
	"capgpu/model/tokenizer"
)

// expected answers a request alone, in the slow and obvious way.
func expected(q lm.Request, z size) (tokens []lm.Token, f lm.Finish) {
	text := append([]int32(nil), q.Tokens...)
	if q.Tokens == nil {
		text = testWords.Encode(q.Prompt, tokenizer.Encode{})
	}

	prompt := len(text)
	limit := min(testContext+1, prompt+q.MaxTokens)
	if q.MaxTokens == 0 {
		limit = min(testContext, z.pages*z.pagePositions) + 1
	}

	sampler, err := sample.New(q.Sampling, testWords.Vocab())
	if err != nil {
		panic(err)
	}

	sampler.Accept(text...)
	d := testWords.Decoder(text...)
	if q.Echo {
		d = testWords.Decoder()
		for i, t := range text {
			e := lm.Token{ID: t, Text: d.Add(t)}
			if i == prompt-1 {
				e.Text += d.Flush()
			}
			if q.LogProbs >= 0 && i > 0 {
				c := likelihood(logitsOf(text[:i]), t, q.LogProbs)
				e.LogProb, e.Top = c.LogProb, tops(c)
			}
			tokens = append(tokens, e)
		}
	}

	all := ""      // the answer's text, stop strings included
	delivered := 0 // of it
	for {
		c, err := sampler.Next(logitsOf(text), q.LogProbs)
		if err != nil {
			panic(err)
		}

		text = append(text, c.ID)
		t := lm.Token{ID: c.ID}
		if q.LogProbs >= 0 {
			t.LogProb, t.Top = c.LogProb, tops(c)
		}

		end := testWords.IsEnd(c.ID) && !q.IgnoreEnd
		if end {
			all += d.Flush()
		} else {
			all += d.Add(c.ID)
			if len(text) >= limit && firstStop(all, q.Stop) < 0 {
				all += d.Flush()
				f = lm.Length
			}
		}

		upTo := certain(all, q.Stop)
		if f == lm.Length || end {
			upTo = len(all)
		}
		if i := firstStop(all, q.Stop); i >= 0 {
			upTo, f = i, lm.Stop
		}
		if end {
			f = lm.Stop
		}

		t.Text, delivered = all[delivered:upTo], upTo
		tokens = append(tokens, t)
		if f != lm.Unfinished {
			return tokens, f
		}
	}
}

func tops(c sample.Choice) []lm.Alternative {
	var out []lm.Alternative
	for _, t := range c.Top {
		out = append(out, lm.Alternative{ID: t.ID, Text: testWords.Piece(t.ID), LogProb: t.LogProb})
	}
	return out
}
