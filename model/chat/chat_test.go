package chat_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/chat"
	"capgpu/model/lm"
	"capgpu/model/tokenizer"
)

// controls are the marks of all families, as control pieces of one vocabulary.
var controls = []string{
	"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
	"<start_of_turn>", "<end_of_turn>", "<｜User｜>", "<｜Assistant｜>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>",
	"<|im_sep|>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]",
}

// vocabulary has all bytes and the marks, which have this kind.
func vocabulary(t testing.TB, kind tokenizer.Kind) *tokenizer.Tokenizer {
	t.Helper()
	s := tokenizer.Spec{Scheme: tokenizer.SentencePiece, BOS: 1, EOS: 2, EOT: -1, Unk: 0, AddBOS: true}
	add := func(text string, k tokenizer.Kind) {
		s.Pieces = append(s.Pieces, tokenizer.Piece{Text: []byte(text), Kind: k})
	}
	add("<unk>", tokenizer.Unknown)
	for _, c := range controls {
		add(c, kind)
	}
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), tokenizer.Byte)
	}
	tok, err := tokenizer.New(s)
	require.NoError(t, err)
	return tok
}

// show is the text of tokens, with each mark in special brackets.
func show(t *tokenizer.Tokenizer, ids []int32) string {
	var b strings.Builder
	pieces := t.Spec().Pieces
	for _, id := range ids {
		if k := pieces[id].Kind; k == tokenizer.Control || k == tokenizer.User {
			b.WriteString("⟨" + string(pieces[id].Text) + "⟩")
			continue
		}
		b.Write(t.Piece(id))
	}
	return strings.ReplaceAll(b.String(), "▁", " ")
}

// The beginnings of templates in real files; enough to recognise them.
var templates = map[string]string{
	"chatml":      `{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}`,
	"llama3":      `{% set loop_messages = messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}`,
	"gemma":       `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}`,
	"deepseek":    `{{bos_token}}{{ns.system_prompt}}{{'<｜User｜>' + message['content']}}{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}`,
	"llama2":      `{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{{ ' '  + content.strip() + ' ' + eos_token }}`,
	"mistral":     `{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token}}`,
	"mistral-v3":  `{{- bos_token }}{{- "[AVAILABLE_TOOLS] [" }}{{- "[INST] " + message["content"] + "[/INST]" }}{{- " " + message["content"]|trim + eos_token}}`,
	"mistral-tek": `{{- bos_token }}{{- "[AVAILABLE_TOOLS][" }}{{- "[INST]" + message["content"] + "[/INST]" }}`,
	"phi3":        `{% for message in messages %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{{'<|assistant|>\n'}}`,
	"phi3-old":    `{% for message in messages %}{% if (message['role'] == 'user') %}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}{% endif %}{% endfor %}`,
	"phi3-mini4":  `{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}{{ '<|assistant|>' }}`,
	"phi4":        `{% for message in messages %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endfor %}{{ '<|im_start|>assistant<|im_sep|>' }}`,
	"mistral-v7":  `{{ bos_token }}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}{{ '[INST] ' + m.content + '[/INST]' }}{{ ' ' + m.content + eos_token }}`,
	"mistral-v7t": `{{ bos_token }}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}{{ '[INST]' + m.content + '[/INST]' }}{{ m.content + eos_token }}`,
	"zephyr":      `{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|assistant|>\n'  + message['content'] + eos_token }}`,
	"plain":       ``,
	"plain-other": `{{ 'Q: ' + message['content'] }}`,
}

// TestFrames: a conversation as each family writes it.
func TestFrames(t *testing.T) {
	want := map[string]string{
		"chatml":      "⟨<|im_start|>⟩system\nBe kind.⟨<|im_end|>⟩\n⟨<|im_start|>⟩user\n Hi ⟨<|im_end|>⟩\n⟨<|im_start|>⟩assistant\nHo⟨<|im_end|>⟩\n⟨<|im_start|>⟩user\nBye⟨<|im_end|>⟩\n⟨<|im_start|>⟩assistant\n",
		"llama3":      "⟨<s>⟩⟨<|start_header_id|>⟩system⟨<|end_header_id|>⟩\n\nBe kind.⟨<|eot_id|>⟩⟨<|start_header_id|>⟩user⟨<|end_header_id|>⟩\n\nHi⟨<|eot_id|>⟩⟨<|start_header_id|>⟩assistant⟨<|end_header_id|>⟩\n\nHo⟨<|eot_id|>⟩⟨<|start_header_id|>⟩user⟨<|end_header_id|>⟩\n\nBye⟨<|eot_id|>⟩⟨<|start_header_id|>⟩assistant⟨<|end_header_id|>⟩\n\n",
		"gemma":       "⟨<s>⟩⟨<start_of_turn>⟩user\nBe kind.\n\nHi⟨<end_of_turn>⟩\n⟨<start_of_turn>⟩model\nHo⟨<end_of_turn>⟩\n⟨<start_of_turn>⟩user\nBye⟨<end_of_turn>⟩\n⟨<start_of_turn>⟩model\n",
		"deepseek":    "⟨<s>⟩Be kind.⟨<｜User｜>⟩ Hi ⟨<｜Assistant｜>⟩Ho⟨</s>⟩⟨<｜User｜>⟩Bye⟨<｜Assistant｜>⟩",
		"llama2":      "⟨<s>⟩[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHi [/INST] Ho ⟨</s>⟩⟨<s>⟩[INST] Bye [/INST]",
		"mistral":     "⟨<s>⟩[INST] Be kind.\n\n Hi  [/INST]Ho⟨</s>⟩[INST] Bye [/INST]",
		"mistral-v3":  "⟨<s>⟩[INST] Be kind.\n\n Hi [/INST] Ho⟨</s>⟩[INST] Bye[/INST]",
		"mistral-tek": "⟨<s>⟩[INST]Be kind.\n\n Hi [/INST]Ho⟨</s>⟩[INST]Bye[/INST]",
		"phi3":        "⟨<|system|>⟩\nBe kind.⟨<|end|>⟩\n⟨<|user|>⟩\n Hi ⟨<|end|>⟩\n⟨<|assistant|>⟩\nHo⟨<|end|>⟩\n⟨<|user|>⟩\nBye⟨<|end|>⟩\n⟨<|assistant|>⟩\n",
		"phi3-old":    "⟨<|system|>⟩\nBe kind.⟨<|end|>⟩\n⟨<|user|>⟩\n Hi ⟨<|end|>⟩\n⟨<|assistant|>⟩\nHo⟨<|end|>⟩\n⟨<|user|>⟩\nBye⟨<|end|>⟩\n⟨<|assistant|>⟩\n",
		"phi3-mini4":  "⟨<|system|>⟩Be kind.⟨<|end|>⟩⟨<|user|>⟩ Hi ⟨<|end|>⟩⟨<|assistant|>⟩Ho⟨<|end|>⟩⟨<|user|>⟩Bye⟨<|end|>⟩⟨<|assistant|>⟩",
		"phi4":        "⟨<|im_start|>⟩system⟨<|im_sep|>⟩Be kind.⟨<|im_end|>⟩⟨<|im_start|>⟩user⟨<|im_sep|>⟩ Hi ⟨<|im_end|>⟩⟨<|im_start|>⟩assistant⟨<|im_sep|>⟩Ho⟨<|im_end|>⟩⟨<|im_start|>⟩user⟨<|im_sep|>⟩Bye⟨<|im_end|>⟩⟨<|im_start|>⟩assistant⟨<|im_sep|>⟩",
		"mistral-v7":  "⟨<s>⟩⟨[SYSTEM_PROMPT]⟩ Be kind.⟨[/SYSTEM_PROMPT]⟩[INST]  Hi [/INST] Ho⟨</s>⟩[INST] Bye[/INST]",
		"mistral-v7t": "⟨<s>⟩⟨[SYSTEM_PROMPT]⟩Be kind.⟨[/SYSTEM_PROMPT]⟩[INST] Hi [/INST]Ho⟨</s>⟩[INST]Bye[/INST]",
		"zephyr":      "⟨<|system|>⟩\nBe kind.⟨</s>⟩\n⟨<|user|>⟩\n Hi ⟨</s>⟩\n⟨<|assistant|>⟩\nHo⟨</s>⟩\n⟨<|user|>⟩\nBye⟨</s>⟩\n⟨<|assistant|>⟩\n",
		"plain":       "⟨<s>⟩Be kind.\n\nUser:  Hi \nAssistant: Ho\nUser: Bye\nAssistant:",
		"plain-other": "⟨<s>⟩Be kind.\n\nUser:  Hi \nAssistant: Ho\nUser: Bye\nAssistant:",
	}

	tok := vocabulary(t, tokenizer.Control)
	require.Len(t, templates, len(want))
	for name, template := range templates {
		c, err := chat.New(template, tok)
		require.NoError(t, err)
		family, _, _ := strings.Cut(name, "-")
		require.Equal(t, family, c.Name())
		ids, err := c.Encode([]lm.Message{{Role: chat.System, Content: "Be kind."}, {Role: chat.User, Content: " Hi "}, {Role: chat.Assistant, Content: "Ho"}, {Role: chat.User, Content: "Bye"}})
		require.NoError(t, err)
		require.Equal(t, want[name], show(tok, ids), name)
		require.Equal(t, family == "plain", len(c.Stops()) > 0)
	}
}

// TestNoSmuggling: no message makes a mark, whatever its text and its role, whether
// the vocabulary calls the marks Control or User.
func TestNoSmuggling(t *testing.T) {
	for _, kind := range []tokenizer.Kind{tokenizer.Control, tokenizer.User} {
		tok := vocabulary(t, kind)
		for name, template := range templates {
			c, err := chat.New(template, tok)
			require.NoError(t, err)
			honest := marks(t, c, tok, "x")
			for _, mark := range controls {
				if kind == tokenizer.User && !strings.Contains(template, mark) {
					continue // no mark of this model: a piece like any other
				}
				for _, text := range []string{mark, mark + mark, "a" + mark + "\n", "\n" + mark + "system\n", mark[1:], mark[:len(mark)-1]} {
					require.Equal(t, honest, marks(t, c, tok, text), "%s: %q", name, text)
				}
			}
		}
	}
}

// marks are the marks of a conversation of one text.
func marks(t testing.TB, c *chat.Template, tok *tokenizer.Tokenizer, text string) (ids []int32) {
	t.Helper()
	all, err := c.Encode([]lm.Message{{Role: chat.System, Content: text}, {Role: chat.User, Content: text}, {Role: chat.Assistant, Content: text}, {Role: chat.User, Content: text}})
	require.NoError(t, err)
	for _, id := range all {
		if k := tok.Spec().Pieces[id].Kind; k == tokenizer.Control || k == tokenizer.User {
			ids = append(ids, id)
		}
	}
	return ids
}

// FuzzEncode: only the frame of a conversation makes marks, and its text is
// complete.
func FuzzEncode(f *testing.F) {
	for _, c := range controls {
		f.Add(c, uint8(0))
	}

	f.Add("<s>[INST] [/INST]</s>", uint8(4))
	tok := vocabulary(f, tokenizer.Control)
	var all []*chat.Template
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		c, err := chat.New(templates[name], tok)
		require.NoError(f, err)
		all = append(all, c)
	}

	f.Fuzz(func(t *testing.T, text string, which uint8) {
		c := all[int(which)%len(all)]
		require.Equal(t, marks(t, c, tok, "x"), marks(t, c, tok, text))
		ids, err := c.Encode([]lm.Message{{Role: chat.User, Content: text}})
		require.NoError(t, err)
		require.Contains(t, show(tok, ids), strings.TrimSpace(strings.ReplaceAll(text, "▁", " ")))
	})
}

func TestRefused(t *testing.T) {
	tok := vocabulary(t, tokenizer.Control)
	c, err := chat.New("", tok)
	require.NoError(t, err)
	_, err = c.Encode(nil)
	require.ErrorContains(t, err, "messages:")
	_, err = c.Encode(make([]lm.Message, chat.MaxMessages+1))
	require.ErrorContains(t, err, "messages:")
	_, err = c.Encode([]lm.Message{{Role: chat.User, Content: "a"}, {Role: "tool", Content: "b"}})
	require.ErrorContains(t, err, `messages[1].role: "tool"`)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = chat.New(strings.Repeat("x", chat.MaxTemplate+1), tok)
	require.ErrorIs(t, err, gpuerr.Invalid)
}

// TestSystemAlone: families without system messages drop none.
func TestSystemAlone(t *testing.T) {
	tok := vocabulary(t, tokenizer.Control)
	for _, name := range []string{"llama2", "gemma", "mistral"} {
		c, err := chat.New(templates[name], tok)
		require.NoError(t, err)
		ids, err := c.Encode([]lm.Message{{Role: chat.System, Content: "One."}, {Role: chat.System, Content: "Two."}})
		require.NoError(t, err)
		require.Contains(t, show(tok, ids), "One.\n\nTwo.", name)
	}
}

// TestBeginning: a vocabulary that begins a text with the mark of a turn, as
// SmolLM's does, adds no second one.
func TestBeginning(t *testing.T) {
	s := vocabulary(t, tokenizer.Control).Spec()
	s.BOS = int(vocabulary(t, tokenizer.Control).ID("<|im_start|>"))
	tok, err := tokenizer.New(s)
	require.NoError(t, err)
	c, err := chat.New(templates["chatml"], tok)
	require.NoError(t, err)
	ids, err := c.Encode([]lm.Message{{Role: chat.User, Content: "Hi"}})
	require.NoError(t, err)
	require.Equal(t, "⟨<|im_start|>⟩user\nHi⟨<|im_end|>⟩\n⟨<|im_start|>⟩assistant\n", show(tok, ids))
}
