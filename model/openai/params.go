package openai

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"capgpu/model/lm"
)

// common are the parameters that completions and chat share.
type common struct {
	model        string
	n            int
	stream       bool
	includeUsage bool
	request      lm.Request // but the prompt
}

// without lists the members that change nothing with one of these values (or null).
// With any other value they are refused, because the feature is not implemented.
// Members in neither this table nor the code are ignored.
var without = map[string][]string{
	"best_of": {"1"}, "suffix": {`""`},
	"tools": {"[]"}, "tool_choice": {`"none"`, `"auto"`}, "functions": {"[]"}, "function_call": {`"none"`, `"auto"`},
	"response_format": {`{"type":"text"}`}, "modalities": {`["text"]`}, "audio": {}, "prediction": {},
	"web_search_options": {}, "reasoning_effort": {`"none"`}, "verbosity": {`"medium"`}, "store": {"false"},
	// From other servers of this API.
	"guided_json": {}, "guided_regex": {}, "guided_choice": {}, "guided_grammar": {}, "structured_outputs": {},
	"grammar": {`""`}, "json_schema": {}, "chat_template": {}, "chat_template_kwargs": {"{}"}, "continue_final_message": {"false"},
	"min_tokens": {"0"}, "use_beam_search": {"false"}, "length_penalty": {"1", "1.0"}, "allowed_token_ids": {}, "bad_words": {"[]"},
	"typical_p": {"1", "1.0"}, "mirostat": {"0"}, "tfs_z": {"1", "1.0"}, "top_a": {"0"}, "dry_multiplier": {"0"}, "xtc_probability": {"0"},
	"prompt_embeds": {}, "images": {"[]"}, "truncate_prompt_tokens": {}, "prompt_logprobs": {},
}

// common reads them. Defaults are OpenAI's: temperature 1, top_p 1, n 1. top_k,
// min_p, repetition_penalty and ignore_eos are extensions, as vLLM and llama.cpp
// spell them.
func (a *api) common(f fields) (c common, err error) {
	if err = f.refuse(without); err != nil {
		return c, err
	}
	if c.model, err = f.text("model", maxNameBytes); err != nil {
		return c, err
	}
	if err = a.known(c.model); err != nil {
		return c, err
	}

	n, err := f.integer("n", 1, int64(a.o.MaxChoices), 1)
	if err != nil {
		return c, err
	}

	c.n = int(n)
	if c.stream, err = f.flag("stream"); err != nil {
		return c, err
	}

	if raw, ok := f["stream_options"]; ok {
		o, err := members(raw, maxMembers)
		if err != nil {
			return c, invalid("stream_options", "is not an object: %v", err)
		}
		if !c.stream {
			return c, invalid("stream_options", "only where stream is true")
		}
		if c.includeUsage, err = o.flag("include_usage"); err != nil {
			return c, within("stream_options", err)
		}
	}

	if c.request.IgnoreEnd, err = f.flag("ignore_eos"); err != nil {
		return c, err
	}
	if c.request.Stop, err = f.stops(); err != nil {
		return c, err
	}

	return c, a.sampling(f, &c.request)
}

func (a *api) sampling(f fields, r *lm.Request) error {
	var failed error
	number := func(name string, least, most, without float64) float32 {
		n, err := f.number(name, least, most, without)
		if err != nil && failed == nil {
			failed = err
		}
		return float32(n)
	}

	p := &r.Sampling
	p.Temperature = number("temperature", 0, 2, 1)
	p.TopP = number("top_p", 0, 1, 1)
	if p.TopP == 0 { // there 0 means all, here the fewest
		p.TopP = math.SmallestNonzeroFloat32
	}

	p.MinP = number("min_p", 0, 1, 0)
	p.Presence = number("presence_penalty", -2, 2, 0)
	p.Frequency = number("frequency_penalty", -2, 2, 0)
	p.Repetition = number("repetition_penalty", 0.01, 100, 1)
	if p.Presence != 0 || p.Frequency != 0 {
		p.PenaltyLast = -1 // of the whole text
	}
	if failed != nil {
		return failed
	}

	if top, err := f.integer("top_k", -1, math.MaxInt32, 0); err != nil {
		return err
	} else {
		p.TopK = int(max(top, 0)) // -1 means all, too
	}

	if f.has("seed") {
		seed, err := f.integer("seed", math.MinInt64, math.MaxInt64, 0)
		if err != nil {
			return err
		}
		p.Seed, p.Seeded = uint64(seed), true
	}

	return a.bias(f, r)
}

// bias is a map from token numbers, as strings, to the added values.
func (a *api) bias(f fields, r *lm.Request) error {
	const name = "logit_bias"
	raw, ok := f[name]
	if !ok {
		return nil
	}

	m, err := members(raw, maxBias)
	if err != nil {
		return invalid(name, "is not an object of tokens: %v", err)
	}

	vocab := a.m.Info().Vocab
	for token, raw := range m {
		id, err := strconv.ParseUint(token, 10, 31)
		if err != nil || id >= uint64(vocab) || strconv.FormatUint(id, 10) != token { // each number has one spelling
			return invalid(name, "%q is no token of the %d", clip(token), vocab)
		}
		add, err := numberOf(name+"."+token, raw, -100, 100)
		if err != nil {
			return err
		}
		if r.Sampling.Bias == nil {
			r.Sampling.Bias = map[int32]float32{}
		}
		r.Sampling.Bias[int32(id)] = float32(add)
	}

	return nil
}

// most is a bound of an answer's tokens. It may exceed the context, which ends the
// answer anyway.
func (f fields) most(name string, without int64) (int, error) {
	n, err := f.integer(name, 1, math.MaxInt32, without)
	return int(n), err
}

// stops is a string or a list of strings.
func (f fields) stops() (stops []string, err error) {
	const name = "stop"
	raw, ok := f[name]
	if !ok {
		return nil, nil
	}

	add := func(param string, raw json.RawMessage) error {
		s, err := textOf(param, raw, lm.MaxStopBytes)
		if err == nil && s == "" {
			err = invalid(param, "is empty")
		}
		if err == nil && !slices.Contains(stops, s) {
			stops = append(stops, s)
		}
		return err
	}

	if raw[0] != '[' {
		return stops, add(name, raw)
	}

	err = each(name, raw, lm.MaxStops, func(i int, raw json.RawMessage) error { return add(at(name, i), raw) })
	return stops, err
}

// tokens are numbers of the vocabulary.
func (a *api) tokens(param string, raw json.RawMessage) ([]int32, error) {
	info := a.m.Info()
	var tokens []int32
	err := each(param, raw, info.Context, func(i int, raw json.RawMessage) error {
		id, err := integerOf(at(param, i), raw, 0, int64(info.Vocab)-1)
		tokens = append(tokens, int32(id))
		return err
	})
	if err == nil && len(tokens) == 0 {
		err = invalid(param, "is empty")
	}
	return tokens, err
}
