package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"capgpu/model/lm"
)

// chat is POST /v1/chat/completions.
type chat struct {
	common
	messages []lm.Message
}

func (a *api) parseChat(f fields) (c chat, err error) {
	if c.common, err = a.common(f); err != nil {
		return c, err
	}

	// The newer name wins; without either the answer runs to its end.
	name := "max_tokens"
	if f.has("max_completion_tokens") {
		name = "max_completion_tokens"
	}
	if c.request.MaxTokens, err = f.most(name, 0); err != nil {
		return c, err
	}

	logprobs, err := f.flag("logprobs")
	if err != nil {
		return c, err
	}

	top, err := f.integer("top_logprobs", 0, lm.MaxLogProbs, 0)
	switch {
	case err != nil:
		return c, err
	case !logprobs && f.has("top_logprobs") && top > 0:
		return c, invalid("top_logprobs", "only where logprobs is true")
	}

	c.request.LogProbs = -1
	if logprobs {
		c.request.LogProbs = int(top)
	}

	// If a template has no token that ends an answer, its texts end it.
	own := len(c.request.Stop)
	for _, stop := range a.m.Info().ChatStops {
		if !slices.Contains(c.request.Stop, stop) {
			c.request.Stop = append(c.request.Stop, stop)
		}
	}

	if added := len(c.request.Stop) - own; own+added > lm.MaxStops {
		return c, invalid("stop", "%d are more than %d, with %d of the template", own, lm.MaxStops-added, added)
	}

	c.messages, err = a.messages(f)
	return c, err
}

func (a *api) messages(f fields) (list []lm.Message, err error) {
	const name = "messages"
	raw, ok := f[name]
	if !ok {
		return nil, invalid(name, "is missing")
	}
	err = each(name, raw, a.o.MaxMessages, func(i int, raw json.RawMessage) error {
		m, err := message(at(name, i), raw)
		list = append(list, m)
		return err
	})
	if err == nil && len(list) == 0 {
		err = invalid(name, "is empty")
	}
	return list, err
}

// notOfMessages are the members of messages that without is for requests.
var notOfMessages = map[string][]string{
	"tool_calls": {"[]"}, "function_call": {}, "tool_call_id": {}, "audio": {}, "refusal": {`""`}, "name": {`""`}, "prefix": {"false"},
}

var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

func message(param string, raw json.RawMessage) (m lm.Message, err error) {
	f, err := members(raw, maxMembers)
	if err != nil {
		return m, invalid(param, "is not an object: %v", err)
	}
	if err := f.refuse(notOfMessages); err != nil {
		return m, within(param, err)
	}

	role, err := f.text("role", maxNameBytes)
	if err != nil {
		return m, within(param, err)
	}

	known := false
	if m.Role, known = roles[role]; !known {
		if role == "tool" || role == "function" {
			return m, unsupported(param+".role", "this model calls no tools")
		}
		return m, invalid(param+".role", "%q is none of system, developer, user, assistant", clip(role))
	}

	content, ok := f["content"]
	switch {
	case !ok:
		return m, invalid(param+".content", "is missing")
	case content[0] == '"':
		m.Content, err = textOf(param+".content", content, len(content))
		return m, err
	}

	var text strings.Builder
	err = each(param+".content", content, len(content), func(i int, raw json.RawMessage) error {
		part := at(param+".content", i)
		s, err := textPart(part, raw)
		text.WriteString(s)
		return err
	})

	m.Content = text.String()
	return m, err
}

// textPart is {"type": "text", "text": "…"}.
func textPart(param string, raw json.RawMessage) (string, error) {
	f, err := members(raw, maxMembers)
	if err != nil {
		return "", invalid(param, "is not an object: %v", err)
	}
	kind, err := f.text("type", maxNameBytes)
	switch {
	case err != nil:
		return "", within(param, err)
	case kind != "text":
		return "", unsupported(param+".type", "%q: this model takes text only", clip(kind))
	case !f.has("text"):
		return "", invalid(param+".text", "is missing")
	}
	return textOf(param+".text", f["text"], len(raw))
}

// within prefixes an error's field with the object that contains it.
func within(param string, err error) error {
	if p, ok := err.(*problem); ok && p.Param != nil {
		full := param + "." + *p.Param
		p.Message = full + strings.TrimPrefix(p.Message, *p.Param)
		p.Param = &full
	}
	return err
}

func (a *api) chats(ctx context.Context, f fields) (http.HandlerFunc, error) {
	c, err := a.parseChat(f)
	if err != nil {
		return nil, err
	}

	tokens, err := a.m.Chat(ctx, c.messages)
	if err != nil {
		return nil, err
	}

	asked := c.common // without the messages
	return func(w http.ResponseWriter, r *http.Request) {
		var requests []lm.Request
		for i := range asked.n {
			requests = append(requests, asked.nth(lm.Request{Tokens: tokens}, i))
		}
		a.answer(w, r, &asked, requests, &chatShape{
			head: a.newHead("chatcmpl-", "chat.completion"), logprobs: asked.request.LogProbs >= 0,
		})
	}, nil
}

// chatShape is the shape of chats.
type chatShape struct {
	head     head
	logprobs bool
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatDelta    `json:"delta,omitempty"`
	LogProbs     *chatLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatLogProbs struct {
	Content []chatToken `json:"content"`
	Refusal *string     `json:"refusal"`
}

type chatToken struct {
	Token   string       `json:"token"`
	LogProb *float32     `json:"logprob"`
	Bytes   byteList     `json:"bytes"`
	Top     *[]chatToken `json:"top_logprobs,omitempty"`
}

func (s *chatShape) heads() (whole, part head) {
	part = s.head
	part.Object = "chat.completion.chunk"
	return s.head, part
}

func (s *chatShape) reportsTokens() bool { return s.logprobs }

func (s *chatShape) opening(c *choice) any {
	return chatChoice{Index: c.index, Delta: &chatDelta{Role: "assistant", Content: new(string)}}
}

func (s *chatShape) chunk(c *choice, t lm.Token) any {
	return chatChoice{Index: c.index, Delta: &chatDelta{Content: &t.Text}, LogProbs: s.probs([]lm.Token{t})}
}

func (s *chatShape) closing(c *choice) any {
	return chatChoice{Index: c.index, Delta: &chatDelta{}, FinishReason: c.reason()}
}

func (s *chatShape) whole(c *choice) any {
	return chatChoice{
		Index: c.index, Message: &chatMessage{Role: "assistant", Content: c.text.String()},
		LogProbs: s.probs(c.tokens), FinishReason: c.reason(),
	}
}

func (s *chatShape) probs(tokens []lm.Token) *chatLogProbs {
	if !s.logprobs {
		return nil
	}
	l := &chatLogProbs{Content: []chatToken{}}
	for i := range tokens {
		t := &tokens[i]
		own, top := tokenOf(bytesOf(t), t.LogProb), []chatToken{}
		for _, o := range t.Top {
			top = append(top, tokenOf(o.Text, o.LogProb))
		}
		own.Top = &top
		l.Content = append(l.Content, own)
	}
	return l
}

func tokenOf(text []byte, p float32) chatToken {
	return chatToken{Token: strings.ToValidUTF8(string(text), "\ufffd"), LogProb: finite(p), Bytes: text}
}
