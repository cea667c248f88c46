package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// golden is one file of testdata/golden.
type golden struct {
	Tokenizer json.RawMessage
	Cases     []goldenCase
}

type goldenCase struct {
	text string
	ids  []int32
}

func (c *goldenCase) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&c.text, &c.ids})
}

func readGolden(t testing.TB) map[string]golden {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.json")
	require.NoError(t, err)
	all := map[string]golden{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		var g golden
		require.NoError(t, json.Unmarshal(b, &g), f)
		all[strings.TrimSuffix(filepath.Base(f), ".json")] = g
	}
	require.Len(t, all, 10)
	return all
}

// TestGolden: the tokens equal those of Hugging Face's own library.
func TestGolden(t *testing.T) {
	for name, g := range readGolden(t) {
		tok, _, err := FromJSON(g.Tokenizer, nil)
		require.NoError(t, err, name)
		require.Greater(t, len(g.Cases), 50)
		for _, c := range g.Cases {
			got := tok.Encode(c.text, Encode{Special: true})
			require.Equal(t, fmt.Sprint(c.ids), fmt.Sprint(got), "%s: %q: %q, not %q", name, c.text, pieces(tok, got), pieces(tok, c.ids))
		}
	}
}

// change is a golden file with one part replaced.
func change(t *testing.T, g golden, from, to string) []byte {
	t.Helper()
	text := string(g.Tokenizer)
	require.Contains(t, text, from)
	return []byte(strings.Replace(text, from, to, 1))
}

// TestJSONRefused: an unsupported feature is refused, by name.
func TestJSONRefused(t *testing.T) {
	all := readGolden(t)
	const byteLevel = `{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}`
	for _, c := range []struct{ file, from, to, says string }{
		{"gpt2", `"type":"BPE"`, `"type":"WordPiece"`, `model: type "WordPiece"`},
		{"gpt2", `"dropout":null`, `"dropout":0.1`, "model: dropout"},
		{"gpt2", `"continuing_subword_prefix":null`, `"continuing_subword_prefix":"##"`, "continuing_subword_prefix"},
		{"gpt2", `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, "end_of_word_suffix"},
		{"gpt2", `"byte_fallback":false`, `"byte_fallback":true`, "byte_fallback with ByteLevel"},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"NFKC"}`, `normalizer: "NFKC"`},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Prepend","prepend":"▁"}`, "Prepend and Replace with ByteLevel"},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"Sequence"}]}`, "a Sequence in a Sequence"},
		{"gpt2", `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[` + strings.Repeat(`{"type":"NFC"},`, 40) + `{}]}`, "more than 32"},
		{"gpt2", `"pre_tokenizer":` + byteLevel, `"pre_tokenizer":null`, "neither ByteLevel nor byte_fallback"},
		{"gpt2", `"pre_tokenizer":` + byteLevel, `"pre_tokenizer":{"type":"Whitespace"}`, `pre_tokenizer: "Whitespace"`},
		{"llama3", `"behavior":"Isolated"`, `"behavior":"MergedWithNext"`, `"MergedWithNext"`},
		{"llama3", `\\s+(?!\\S)|\\s+"`, `(?<!x)"`, "splits[0]"},
		{"smollm", `"add_prefix_space":false`, `"add_prefix_space":true`, "add_prefix_space after Digits"},
		{"gpt2", `"post_processor":null`, `"post_processor":{"type":"BertProcessing"}`, `post_processor: "BertProcessing"`},
		{"llama2", `"ids":[1]`, `"ids":[1,2]`, `"<s>" is not one token`},
		{"llama2", `"ids":[1]`, `"ids":[99999]`, `"<s>" is not one token`},
		{"llama2", `{"Sequence":{"id":"A","type_id":0}}`, `{"SpecialToken":{"id":"<s>"}}`, "two tokens on one side"},
		{"llama2", `"prepend":"▁"`, `"prepend":"_"`, `the Prepend of "_"`},
		{"llama2", `"content":"▁"`, `"content":"_"`, "this Replace"},
		{"llama2", `"byte_fallback":true`, `"byte_fallback":false`, "neither ByteLevel nor byte_fallback"},
		{"llama2", `"ignore_merges":false`, `"ignore_merges":true`, "ignore_merges with byte_fallback"},
		{"llama2", `"<0x41>":`, `"<0xZZ>":`, "byte_fallback without <0x41>"},
		{"metaspace-first", `"split":false`, `"split":true`, "a Metaspace that splits"},
		{"metaspace-first", `"prepend_scheme":"first"`, `"prepend_scheme":"last"`, `"last"`},
		{"metaspace-first", `"replacement":"▁"`, `"replacement":"_"`, `the Metaspace of "_"`},
		{"metaspace-first", `"pre_tokenizer":{"type":"Metaspace"`, `"pre_tokenizer":null,"x":{"type":"x"`, "spaces as ▁"},
		{"gpt2", `"single_word":false`, `"single_word":true`, "added_tokens: [0]: \"<|begin|>\": single_word"},
		{"gpt2", `"content":"<|end|>"`, `"content":"<|begin|>"`, `pieces`},
		{"gpt2", `"id":417`, `"id":12`, `added_tokens: [1]: "<|end|>" is token 12, which is`},
		{"gpt2", `"id":417`, `"id":416`, `added_tokens: [1]: "<|end|>" is token 416, which is "<|begin|>"`},
		{"gpt2", `"id":417`, `"id":-1`, `"<|end|>" is token -1`},
		{"gpt2", `"id":417`, `"id":1000000`, "token 1000000 of a vocabulary of"},
		{"gpt2", `"id":417`, `"id":1e30`, "cannot unmarshal number"},
		{"gpt2", `"!":33`, `"!":34`, "are both token 34"},
		{"gpt2", `"!":33`, `"!":33.5`, `vocab: "!" is token 33.5`},
		{"gpt2", `"!":33`, `"!":1048576`, `vocab: "!" is token`},
		{"gpt2", `"!":33`, `"!":-33`, `vocab: "!" is token -33`},
		{"gpt2", `"!":33`, `"!":"33"`, `vocab: "!" is token 33`},
		{"gpt2", `"!":33`, `"!":33,"!":33`, `"!" is there twice`},
		{"gpt2", `"vocab":{`, `"vocab":[],"x":{`, "vocab is no object"},
		{"gpt2", `"merges":[`, `"merges":["! qqqq",`, `merges[0]: "qqqq" is no piece`},
		{"gpt2", `"merges":[`, `"merges":["!",`, `merges[0]: "!" is not of two parts`},
		{"gpt2", `"merges":[`, `"merges":[["!","! !"],`, `merges[0]:`},
		{"gpt2", `"merges":[`, `"merges":[["!"],`, `merges[0]: neither`},
		{"gpt2", `"merges":[`, `"merges":[7,`, `merges[0]: neither`},
		{"gpt2", `"merges":[`, `"merges":{},"x":[`, `merges are no array`},
		{"gpt2", `{`, ``, "tokenizer.json:"},
		{"gpt2", `"added_tokens":[`, `"added_tokens":[{"id":300,"content":"` + strings.Repeat("x", MaxWhole+1) + `"},`, "added_tokens: [0]"},
	} {
		_, _, err := FromJSON(change(t, all[c.file], c.from, c.to), nil)
		require.ErrorIs(t, err, gpuerr.Invalid, "%s: %s", c.file, c.to)
		require.ErrorContains(t, err, "tokenizer.json: ")
		require.ErrorContains(t, err, c.says, "%s: %s", c.file, c.to)
	}
}

func TestJSONConfig(t *testing.T) {
	all := readGolden(t)
	tok, template, err := FromJSON(all["gpt2"].Tokenizer, []byte(`{"bos_token":{"content":"<|begin|>","lstrip":false},"eos_token":"<|end|>","add_bos_token":true,"chat_template":"{{x}}"}`))
	require.NoError(t, err)
	require.Equal(t, "{{x}}", template)
	require.Equal(t, []string{"<|begin|>", "a"}, pieces(tok, tok.Encode("a", Encode{})))
	require.Equal(t, []string{"a"}, pieces(tok, tok.Encode("a", Encode{NoBOS: true})))
	require.True(t, tok.IsEnd(tok.ID("<|end|>")))

	tok, template, err = FromJSON(all["llama3"].Tokenizer, []byte(`{"bos_token":null,"add_bos_token":false,"chat_template":[{"name":"rag","template":"r"},{"name":"default","template":"d"}]}`))
	require.NoError(t, err)
	require.Equal(t, "d", template)
	require.Equal(t, []string{"a"}, pieces(tok, tok.Encode("a", Encode{})))
	require.Equal(t, tok.ID("<|begin|>"), tok.BOS())

	tok, template, err = FromJSON(all["llama3"].Tokenizer, []byte(`{"eos_token":null,"chat_template":null,"add_eos_token":true}`))
	require.NoError(t, err)
	require.Empty(t, template)
	require.Equal(t, []string{"<|begin|>", "a"}, pieces(tok, tok.Encode("a", Encode{})))

	for config, says := range map[string]string{
		`{"eos_token":"<nobody>"}`: `eos_token: "<nobody>" is not of the vocabulary`,
		`{"bos_token":7}`:          "cannot unmarshal",
		`{"chat_template":7}`:      "cannot unmarshal",
		`{`:                        "unexpected end",
	} {
		_, _, err := FromJSON(all["gpt2"].Tokenizer, []byte(config))
		require.ErrorIs(t, err, gpuerr.Invalid, config)
		require.ErrorContains(t, err, "tokenizer_config.json: ")
		require.ErrorContains(t, err, says)
	}
}

// TestJSONHoles: unused numbers become tokens that nothing makes.
func TestJSONHoles(t *testing.T) {
	tok, _, err := FromJSON(change(t, readGolden(t)["gpt2"], `"id":417`, `"id":500`), nil)
	require.NoError(t, err)
	require.Equal(t, 501, tok.Vocab())
	require.Empty(t, tok.Piece(450))
	require.Equal(t, []int32{500}, tok.Encode("<|end|>", Encode{Special: true}))
}

// Without a piece for any byte, text without a piece is unknown: one token for
// adjacent characters, if the file says so.
func TestNoBytes(t *testing.T) {
	text := strings.ReplaceAll(string(readGolden(t)["llama2"].Tokenizer), "<0x", "<1x")
	require.Contains(t, text, `"fuse_unk":true`)
	tok, _, err := FromJSON([]byte(text), nil)
	require.NoError(t, err)
	unk := int32(tok.Spec().Unk)
	got := tok.Encode("\U0001F600漢\u0001", Encode{})
	require.Equal(t, unk, got[len(got)-1])
	require.NotEqual(t, unk, got[len(got)-2])

	_, _, err = FromJSON([]byte(strings.Replace(text, `"fuse_unk":true`, `"fuse_unk":false`, 1)), nil)
	require.ErrorContains(t, err, "byte_fallback without <0x00>, and fuse_unk is not true")
	_, _, err = FromJSON([]byte(strings.Replace(text, `"unk_token":"<unk>"`, `"unk_token":null`, 1)), nil)
	require.ErrorContains(t, err, "byte_fallback without <0x00>, and there is no unk_token")
}
