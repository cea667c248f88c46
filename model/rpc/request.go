package rpc

import (
	"context"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
	"capgpu/schema"
)

// The bounds of lists in a request. A message of rpcguard is at most some hundred
// KiB, so these bound the cost of one entry, not memory.
const (
	maxMessages = 1024
	maxBiases   = 1024
)

// readRequest copies a request out of its message.
func readRequest(ctx context.Context, in schema.GenerateRequest, m lm.Model) (lm.Request, error) {
	const most = 1 << 30
	if in.MaxTokens() > most {
		return lm.Request{}, gpuerr.New(gpuerr.Invalid, "maxTokens: %d is beyond every context", in.MaxTokens())
	}

	r := lm.Request{MaxTokens: int(in.MaxTokens()), LogProbs: int(in.LogProbs()), IgnoreEnd: in.IgnoreEnd()}
	if err := readPrompt(ctx, &r, in.Prompt(), m); err != nil {
		return lm.Request{}, err
	}
	if err := readSampling(&r.Sampling, in); err != nil {
		return lm.Request{}, err
	}

	stops, err := in.Stop()
	if err != nil {
		return lm.Request{}, badArgument("stop", err)
	}
	if stops.Len() > lm.MaxStops {
		return lm.Request{}, gpuerr.New(gpuerr.Invalid, "stop: %d strings; at most %d", stops.Len(), lm.MaxStops)
	}

	for i := range stops.Len() {
		s, err := stops.At(i)
		if err != nil {
			return lm.Request{}, badArgument("stop", err)
		}
		r.Stop = append(r.Stop, s)
	}

	return r, nil
}

func readPrompt(ctx context.Context, r *lm.Request, in schema.GenerateRequest_prompt, m lm.Model) error {
	switch in.Which() {
	case schema.GenerateRequest_prompt_Which_text:
		text, err := in.Text()
		if err != nil {
			return badArgument("prompt", err)
		}
		r.Prompt = text
		return nil

	case schema.GenerateRequest_prompt_Which_tokens:
		list, err := in.Tokens()
		if err != nil {
			return badArgument("prompt", err)
		}
		if list.Len() == 0 {
			return gpuerr.New(gpuerr.Invalid, "prompt: no tokens")
		}
		r.Tokens = make([]int32, list.Len())
		for i := range r.Tokens {
			r.Tokens[i] = list.At(i)
		}
		return nil

	case schema.GenerateRequest_prompt_Which_messages:
		list, err := in.Messages()
		if err != nil {
			return badArgument("prompt", err)
		}
		r.Tokens, err = readMessages(ctx, list, m)
		r.Stop = append(r.Stop, m.Info().ChatStops...)
		return err
	}
	return gpuerr.New(gpuerr.Invalid, "prompt: of kind %d, which this server does not know", in.Which())
}

func readMessages(ctx context.Context, list schema.ChatMessage_List, m lm.Model) ([]int32, error) {
	if list.Len() == 0 || list.Len() > maxMessages {
		return nil, gpuerr.New(gpuerr.Invalid, "messages: %d; 1 to %d are possible", list.Len(), maxMessages)
	}

	messages := make([]lm.Message, list.Len())
	for i := range messages {
		role, err := list.At(i).Role()
		if err != nil {
			return nil, badArgument("role", err)
		}
		content, err := list.At(i).Content()
		if err != nil {
			return nil, badArgument("content", err)
		}
		messages[i] = lm.Message{Role: role, Content: content}
	}

	return m.Chat(ctx, messages)
}

func readSampling(p *sample.Params, r schema.GenerateRequest) error {
	in, err := r.Sampling()
	if err != nil {
		return badArgument("sampling", err)
	}
	if in.TopK() > 1<<30 {
		return gpuerr.New(gpuerr.Invalid, "topK: %d is beyond every vocabulary", in.TopK())
	}

	*p = sample.Params{
		Temperature: in.Temperature(), TopK: int(in.TopK()), TopP: in.TopP(), MinP: in.MinP(),
		Repetition: in.RepetitionPenalty(), Presence: in.PresencePenalty(), Frequency: in.FrequencyPenalty(),
		PenaltyLast: int(in.PenaltyLast()), Seeded: in.Seeded(), Seed: in.Seed(),
	}

	biases, err := in.Bias()
	if err != nil {
		return badArgument("bias", err)
	}
	if biases.Len() > maxBiases {
		return gpuerr.New(gpuerr.Invalid, "bias: %d entries; at most %d", biases.Len(), maxBiases)
	}

	for i := range biases.Len() {
		if p.Bias == nil {
			p.Bias = make(map[int32]float32, biases.Len())
		}
		p.Bias[biases.At(i).Id()] = biases.At(i).Value()
	}

	return nil
}
