package chat

import (
	"math"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/tokenizer"
)

// The bounds of a conversation and a template.
const (
	MaxMessages = 4096    // of a conversation
	MaxTemplate = 1 << 20 // bytes of a template
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Template makes prompts for one model. It does not change; its methods may be called
// from any goroutine.
type Template struct {
	t        *tokenizer.Tokenizer
	family   *family
	bos      bool
	reserved []int32 // pieces of the frame that the file calls User
}

// New recognises a template. One that is longer than MaxTemplate is gpuerr.Invalid.
func New(template string, t *tokenizer.Tokenizer) (*Template, error) {
	if n := len(template); n > MaxTemplate {
		return nil, gpuerr.New(gpuerr.Invalid, "template: %d bytes are more than %d", n, MaxTemplate)
	}

	c := &Template{t: t, family: recognise(template)}
	spec := t.Spec()
	c.bos = spec.AddBOS
	if c.family != &plain {
		c.bos = strings.Contains(template, "bos_token")
		if spec.BOS >= 0 {
			text := string(spec.Pieces[spec.BOS].Text)
			// Some vocabularies begin a text with the mark of a turn.
			c.bos = c.bos || text != "" && strings.Contains(template, text) && !slices.Contains(c.family.marks, text)
		}
	}

	for _, m := range c.family.marks {
		if id := t.ID(m); id >= 0 && spec.Pieces[id].Kind == tokenizer.User {
			c.reserved = append(c.reserved, id)
		}
	}

	return c, nil
}

// Name is the family: "llama3", "plain".
func (c *Template) Name() string { return c.family.name }

// Stops are the texts that end an answer if no token does: the next turn of the
// plain template. Others have none.
func (c *Template) Stops() []string { return c.family.stops }

// Encode returns the prompt for the answer to a conversation. It returns
// gpuerr.Invalid for a conversation that is empty or too long, and for an unknown
// role.
func (c *Template) Encode(messages []lm.Message) ([]int32, error) {
	return c.EncodeMost(math.MaxInt, messages)
}

// EncodeMost is Encode with a bound on the tokens; above it, gpuerr.Invalid.
func (c *Template) EncodeMost(most int, messages []lm.Message) ([]int32, error) {
	if n := len(messages); n < 1 || n > MaxMessages {
		return nil, gpuerr.New(gpuerr.Invalid, "messages: %d are not within 1 to %d", n, MaxMessages)
	}

	for i, m := range messages {
		if m.Role != System && m.Role != User && m.Role != Assistant {
			return nil, gpuerr.New(gpuerr.Invalid, "messages[%d].role: %.40q is not %s, %s or %s", i, m.Role, System, User, Assistant)
		}
	}

	p := &prompt{spec: c.t.Spec()}
	if c.bos {
		p.bos()
	}

	c.family.write(p, messages)
	tokens, ok := c.t.EncodeMost(most, tokenizer.Encode{NoBOS: true, Reserved: c.reserved}, p.parts...)
	if !ok {
		return nil, gpuerr.New(gpuerr.Invalid, "messages: more than %d tokens", most)
	}

	return tokens, nil
}

// prompt is the text of a conversation, split into frame and data.
type prompt struct {
	spec  tokenizer.Spec
	parts []tokenizer.Part
}

// frame appends the template's own text.
func (p *prompt) frame(text string) {
	p.parts = append(p.parts, tokenizer.Part{Text: text, Special: true})
}

// data appends a message's text.
func (p *prompt) data(text string) {
	p.parts = append(p.parts, tokenizer.Part{Text: text})
}

// bos begins a text, eos ends one; if the vocabulary has no such token, they add
// nothing.
func (p *prompt) bos() { p.token(p.spec.BOS) }
func (p *prompt) eos() { p.token(p.spec.EOS) }

func (p *prompt) token(id int) {
	if id >= 0 {
		p.frame(string(p.spec.Pieces[id].Text))
	}
}
