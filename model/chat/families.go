package chat

import (
	"strings"

	"capgpu/model/lm"
)

// family is a set of models with the same kind of template.
type family struct {
	name  string
	marks []string // texts of the frame that are pieces in most vocabularies
	stops []string
	write func(p *prompt, messages []lm.Message)
}

// recognise returns the family of a template, by marks that no other family has.
// The order counts: some families' marks are among another's.
func recognise(template string) *family {
	has := func(marks ...string) bool {
		for _, m := range marks {
			if !strings.Contains(template, m) {
				return false
			}
		}
		return true
	}

	switch {
	case has("<|im_start|>", "<|im_sep|>"):
		return &phi4
	case has("<|im_start|>"):
		return &chatml

	case has("<|start_header_id|>", "<|end_header_id|>"):
		return &llama3
	case has("<start_of_turn>"):
		return &gemma

	case has("<｜Assistant｜>"):
		return &deepseek
	case has("[INST]", "<<SYS>>"):
		return &llama2

	case has("[INST]"):
		return mistral(template)
	case has("<|assistant|>", "<|end|>"), has("<|end|>", "'<|' +"):
		return phi3(has("|>\\n") || has("|>\n") || has(`|>' + '\n'`))

	case has("<|assistant|>", "<|user|>"):
		return &zephyr
	}

	return &plain
}

// turns writes each message between two pieces of frame, and begins the answer's. %s of
// before is the role.
func turns(p *prompt, messages []lm.Message, before, after string, text func(string) string) {
	for _, m := range messages {
		p.frame(strings.Replace(before, "%s", m.Role, 1))
		p.data(text(m.Content))
		p.frame(after)
	}
	p.frame(strings.Replace(before, "%s", Assistant, 1))
}

func asIs(text string) string { return text }

var chatml = family{
	name: "chatml", marks: []string{"<|im_start|>", "<|im_end|>"},
	write: func(p *prompt, messages []lm.Message) {
		turns(p, messages, "<|im_start|>%s\n", "<|im_end|>\n", asIs)
	},
}

var llama3 = family{
	name: "llama3", marks: []string{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
	write: func(p *prompt, messages []lm.Message) {
		turns(p, messages, "<|start_header_id|>%s<|end_header_id|>\n\n", "<|eot_id|>", strings.TrimSpace)
	},
}

// phi4 is ChatML with another mark after the role.
var phi4 = family{
	name: "phi4", marks: []string{"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
	write: func(p *prompt, messages []lm.Message) {
		turns(p, messages, "<|im_start|>%s<|im_sep|>", "<|im_end|>", asIs)
	},
}

// phi3 has its turns on lines, or follows each other's marks without (Phi-4-mini).
func phi3(lines bool) *family {
	end := ""
	if lines {
		end = "\n"
	}
	return &family{
		name: "phi3", marks: []string{"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
		write: func(p *prompt, messages []lm.Message) { turns(p, messages, "<|%s|>"+end, "<|end|>"+end, asIs) },
	}
}

var zephyr = family{
	name: "zephyr", marks: []string{"<|system|>", "<|user|>", "<|assistant|>"},
	write: func(p *prompt, messages []lm.Message) {
		for _, m := range messages {
			p.frame("<|" + m.Role + "|>\n")
			p.data(m.Content)
			p.eos()
			p.frame("\n")
		}
		p.frame("<|assistant|>\n")
	},
}

var plain = family{
	name: "plain", stops: []string{"\nUser:"},
	write: func(p *prompt, messages []lm.Message) {
		for _, m := range messages {
			switch m.Role {
			case System:
				p.data(m.Content)
				p.frame("\n\n")
			case User:
				p.frame("User: ")
				p.data(m.Content)
				p.frame("\n")
			case Assistant:
				p.frame("Assistant: ")
				p.data(m.Content)
				p.frame("\n")
			}
		}
		p.frame("Assistant:")
	},
}

// gemma has no system messages: their text goes before the user's next message.
var gemma = family{
	name: "gemma", marks: []string{"<start_of_turn>", "<end_of_turn>"},
	write: func(p *prompt, messages []lm.Message) {
		pairUp(messages, func(system, text string, of string) {
			if of == Assistant {
				p.frame("<start_of_turn>model\n")
			} else {
				p.frame("<start_of_turn>user\n")
				if system != "" {
					p.data(strings.TrimSpace(system))
					p.frame("\n\n")
				}
			}
			p.data(strings.TrimSpace(text))
			p.frame("<end_of_turn>\n")
		})
		p.frame("<start_of_turn>model\n")
	},
}

var deepseek = family{
	name: "deepseek", marks: []string{"<｜User｜>", "<｜Assistant｜>"},
	write: func(p *prompt, messages []lm.Message) {
		for _, m := range messages {
			switch m.Role {
			case System:
				p.data(m.Content)
			case User:
				p.frame("<｜User｜>")
				p.data(m.Content)
			case Assistant:
				p.frame("<｜Assistant｜>")
				p.data(m.Content)
				p.eos()
			}
		}
		p.frame("<｜Assistant｜>")
	},
}

// llama2 begins each pair of a question and an answer as a text of its own; the
// beginning that New adds is the first one's.
var llama2 = family{
	name: "llama2", marks: []string{"[INST]", "[/INST]"},
	write: func(p *prompt, messages []lm.Message) {
		ended := false
		pairUp(messages, func(system, text string, of string) {
			if of == Assistant {
				p.frame(" ")
				p.data(strings.TrimSpace(text))
				p.frame(" ")
				p.eos()
				ended = true
				return
			}

			if ended {
				p.bos()
			}

			p.frame("[INST] ")
			if system != "" {
				p.frame("<<SYS>>\n")
				p.data(system)
				p.frame("\n<</SYS>>\n\n")
			}

			p.data(strings.TrimSpace(text))
			p.frame(" [/INST]")
		})
	},
}

// mistral's templates differ in the spaces around their marks: the first had them
// on both sides, the third only before the text, and those with the tekken
// vocabulary none. Later ones have marks of the system's text.
var (
	mistral1      = mistralWith(mistralFrame{"[INST] ", " [/INST]", "", ""})
	mistral3      = mistralWith(mistralFrame{"[INST] ", "[/INST]", " ", ""})
	mistralTekken = mistralWith(mistralFrame{"[INST]", "[/INST]", "", ""})
	mistral7      = mistralWith(mistralFrame{"[INST] ", "[/INST]", " ", "[SYSTEM_PROMPT] "})
	mistral7Tek   = mistralWith(mistralFrame{"[INST]", "[/INST]", "", "[SYSTEM_PROMPT]"})
)

// mistralFrame is around a question, before an answer, and before the system's text; the
// last is "" where that goes before a question.
type mistralFrame struct{ before, after, answer, system string }

func mistralWith(f mistralFrame) *family {
	marks := []string{"[INST]", "[/INST]"}
	if f.system != "" {
		marks = append(marks, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
	}
	return &family{name: "mistral", marks: marks, write: func(p *prompt, messages []lm.Message) {
		writeMistral(p, messages, f)
	}}
}

func mistral(template string) *family {
	switch {
	case strings.Contains(template, "[SYSTEM_PROMPT] "):
		return mistral7
	case strings.Contains(template, "[SYSTEM_PROMPT]"):
		return mistral7Tek
	case strings.Contains(template, `"[INST]"`):
		return mistralTekken
	case strings.Contains(template, "[AVAILABLE_TOOLS]") && !strings.Contains(template, " [INST]"):
		return mistral3
	}
	return mistral1
}

func writeMistral(p *prompt, messages []lm.Message, f mistralFrame) {
	if f.system != "" {
		for _, m := range messages {
			switch m.Role {
			case System:
				p.frame(f.system)
				p.data(m.Content)
				p.frame("[/SYSTEM_PROMPT]")
			case User:
				p.frame(f.before)
				p.data(m.Content)
				p.frame(f.after)
			case Assistant:
				p.frame(f.answer)
				p.data(m.Content)
				p.eos()
			}
		}
		return
	}

	pairUp(messages, func(system, text string, of string) {
		if of == Assistant {
			p.frame(f.answer)
			p.data(strings.TrimSpace(text))
			p.eos()
			return
		}
		p.frame(f.before)
		if system != "" {
			p.data(system)
			p.frame("\n\n")
		}
		p.data(text)
		p.frame(f.after)
	})
}

// pairUp calls turn for each user message, with the system's text before it, and
// its answer. A system message without a following user message makes a turn of its
// own.
func pairUp(messages []lm.Message, turn func(system, text, of string)) {
	system, waits := "", false
	for _, m := range messages {
		switch m.Role {
		case System:
			if waits && system != "" {
				system += "\n\n"
			}
			system, waits = system+m.Content, true
		case User:
			turn(system, m.Content, User)
			system, waits = "", false
		case Assistant:
			turn("", m.Content, Assistant)
		}
	}

	if waits {
		turn(system, "", User)
	}
}
