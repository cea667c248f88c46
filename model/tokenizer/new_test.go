package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
)

// TestRefused: each possible lie of a Spec is refused by its name.
func TestRefused(t *testing.T) {
	for says, lie := range map[string]func(s *Spec){
		"scheme: 2":                        func(s *Spec) { s.Scheme = 2 },
		"pieces: 0":                        func(s *Spec) { s.Pieces = nil },
		"pieces: 1048577":                  func(s *Spec) { s.Pieces = make([]Piece, MaxVocab+1) },
		"merges: 2097153":                  func(s *Spec) { s.Merges = make([]string, MaxMerges+1) },
		"ends: 65":                         func(s *Spec) { s.Ends = make([]int, maxEnds+1) },
		"bos: token 260 is not of the 260": func(s *Spec) { s.BOS = 260 },
		"eos: token -2":                    func(s *Spec) { s.EOS = -2 },
		"eot: token 1000":                  func(s *Spec) { s.EOT = 1000 },
		"unk: token 1000":                  func(s *Spec) { s.Unk = 1000 },
		"ends[1]: token 1000":              func(s *Spec) { s.Ends = []int{2, 1000} },
		"pieces[259]: kind 6":              func(s *Spec) { s.Pieces[259].Kind = 6 },
		"pieces[259]: score NaN":           func(s *Spec) { s.Pieces[259].Score = float32(math.NaN()) },
		"pieces[259]: score -Inf":          func(s *Spec) { s.Pieces[259].Score = float32(math.Inf(-1)) },
		"pieces[259]: 4097 bytes":          func(s *Spec) { s.Pieces[259].Text = make([]byte, MaxPiece+1) },
		"pieces[259]: 257 bytes":           func(s *Spec) { s.Pieces[259] = user(strings.Repeat("x", MaxWhole+1)) },
		`pieces[4]: "<0x1>" is no byte`:    func(s *Spec) { s.Pieces[4].Text = []byte("<0x1>") },
		`pieces[5]: "<0xGG>" is no byte`:   func(s *Spec) { s.Pieces[5].Text = []byte("<0xGG>") },
		"pieces[4]: byte 0x00 is piece 3":  func(s *Spec) { s.Pieces[4].Text = []byte("<0x00>") },
		`pieces[260]: "a" is piece 259`:    func(s *Spec) { s.Pieces = append(s.Pieces, normal("a", 0)) },
		`pieces[260]: "<s>" is piece 1`:    func(s *Spec) { s.Pieces = append(s.Pieces, user("<s>")) },
		`merges[1]: "a" is not of two`:     func(s *Spec) { s.Merges = []string{"a b", "a"} },
		`merges[1]: " a" is not of two`:    func(s *Spec) { s.Merges = []string{"a b", " a"} },
		`merges[1]: "a b c" is not of two`: func(s *Spec) { s.Merges = []string{"a b", "a b c"} },
		`merges[1]: "c" is no piece`:       func(s *Spec) { s.Merges = []string{"a b", "a c"} },
		`merges[1]: "ba" is no piece`:      func(s *Spec) { s.Merges = []string{"a b", "b a"} },
		`merges[1]: "a b" is there twice`:  func(s *Spec) { s.Merges = []string{"a b", "a b"} },
	} {
		s := sentenceSpec(normal("a", 0))
		if strings.HasPrefix(says, "merges[") {
			s = sentenceSpec(normal("a", 0), normal("b", 0), normal("ab", 0))
		}
		lie(&s)
		_, err := New(s)
		require.ErrorIs(t, err, gpuerr.Invalid, says)
		require.ErrorContains(t, err, says)
	}
}

// TestNewKeepsSpec: a piece that New makes Control is Control in the Tokenizer's
// Spec, and the caller's pieces stay as they were.
func TestNewKeepsSpec(t *testing.T) {
	s := sentenceSpec(normal("end", 0))
	s.EOS = 259
	tok := mustNew(t, s)
	require.Equal(t, Normal, s.Pieces[259].Kind)
	require.Equal(t, Control, tok.Spec().Pieces[259].Kind)
}

// TestDecoder: for any tokens the decoder returns whole characters, and together
// they are the text of all bytes, without the space of the prefix.
func TestDecoder(t *testing.T) {
	s := sentenceSpec(normal("▁", 0), normal("▁a", 0), normal("é", 0), user(" u"), normal("\xe4\xb8", 0), normal("\x96\xf0\x9f", 0))
	for _, prefix := range []bool{false, true} {
		s.SpacePrefix = prefix
		tok := mustNew(t, s)
		rapid.Check(t, func(rt *rapid.T) {
			ids := rapid.SliceOfN(rapid.Int32Range(-1, int32(tok.Vocab())), 0, 20).Draw(rt, "ids")
			var got strings.Builder
			var all []byte
			first := true
			d := tok.Decoder()
			for _, id := range ids {
				text := d.Add(id)
				require.True(rt, utf8.ValidString(text))
				got.WriteString(text)
				piece := tok.Piece(id)
				if len(piece) == 0 {
					continue
				}
				if first && prefix && tok.spec.Pieces[id].Kind == Normal {
					piece = bytes.TrimPrefix(piece, []byte(" "))
				}
				first = false
				all = append(all, piece...)
			}

			got.WriteString(d.Flush())
			require.Empty(rt, d.Flush())
			require.Equal(rt, string([]rune(string(all))), got.String())
		})
	}
}

func TestDecoderPrompt(t *testing.T) {
	tok := mustNew(t, sentenceSpec(normal("▁", 0), normal("▁a", 0), user("<x>")))
	a, x := tok.ID("▁a"), tok.ID("<x>")
	require.Equal(t, "a", tok.Decoder().Add(a))
	require.Equal(t, "a", tok.Decoder(1).Add(a), "after what has no text")
	require.Equal(t, " a", tok.Decoder(1, a).Add(a))
	require.Equal(t, " a", tok.Decoder(x).Add(a))

	bytesOf := func(s string) (ids []int32) {
		for _, b := range []byte(s) {
			ids = append(ids, 3+int32(b))
		}
		return ids
	}

	d := tok.Decoder(bytesOf("\xe4")...)
	require.Equal(t, "", d.Add(bytesOf("\xb8")[0]))
	require.Equal(t, "世", d.Add(bytesOf("\x96")[0]), "a character that the prompt began")
	require.Equal(t, "", d.Add(bytesOf("\xf0")[0]))
	require.Equal(t, "\uFFFDa", d.Add(bytesOf("a")[0]))
	require.Equal(t, "", d.Add(bytesOf("\xf0")[0]))
	require.Equal(t, "", d.Add(bytesOf("\x9f")[0]))
	require.Equal(t, "", d.Add(1))
	require.Equal(t, "\uFFFD\uFFFD", d.Flush())
}

// llama2cBin is a tokenizer.bin of texts.
func llama2cBin(texts ...string) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 7)
	for i, text := range texts {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(-i)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	return b
}

func TestLlama2c(t *testing.T) {
	texts := []string{"<unk>", "\n<s>\n", "\n</s>\n"}
	for b := range 256 {
		texts = append(texts, fmt.Sprintf("<0x%02X>", b))
	}

	bin := llama2cBin(append(texts, " a", "a", " ")...)
	tok, err := FromLlama2c(bin, 262)
	require.NoError(t, err)
	require.Equal(t, []string{"<s>", "▁a", "<0x62>", "▁a"}, pieces(tok, tok.Encode("ab a", Encode{})))
	require.Equal(t, "ab a", decodeAll(tok, tok.Encode("ab a", Encode{})))

	for _, c := range []struct {
		says  string
		bin   []byte
		vocab int
	}{
		{"a vocabulary of 0", bin, 0}, {"a vocabulary of 1048577", bin, MaxVocab + 1}, {"3 bytes have no header", bin[:3], 1},
		{"have room for", bin[:100], 262}, {"ends before token 261 of 262", bin[:len(bin)-9], 262}, {"ends before token", bin, 300},
		{"token 261: a length of 1 with 0 bytes left", bin[:len(bin)-1], 262}, {"9 bytes follow the last of 261 tokens", bin, 261},
		{"token 0: a length of -1", bytes.Replace(bin, []byte{5, 0, 0, 0}, []byte{255, 255, 255, 255}, 1), 262},
		{"score NaN", bytes.Replace(bin, []byte{0, 0, 0, 0, 5}, []byte{1, 0, 0xc0, 0x7f, 5}, 1), 262},
		{`"a" is piece 260`, llama2cBin(append(texts, " a", "a", "a")...), 262},
	} {
		_, err := FromLlama2c(c.bin, c.vocab)
		require.ErrorIs(t, err, gpuerr.Invalid, c.says)
		require.ErrorContains(t, err, c.says)
	}
}

// FuzzLlama2c: any file is refused or gives a vocabulary that works.
func FuzzLlama2c(f *testing.F) {
	f.Add(llama2cBin("<unk>", "<s>", "</s>", "<0x41>", " a"), 5, "a A")
	f.Add(llama2cBin("a", "b"), 2, "ab")
	f.Fuzz(func(t *testing.T, bin []byte, vocab int, text string) {
		tok, err := FromLlama2c(bin, vocab)
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Invalid)
			return
		}
		check(t, tok, text)
	})
}

// FuzzJSON: the same for tokenizer.json. Seeds are small, because the fuzzer would
// otherwise spend its time on minimising them; "@" in a file stands for the 256
// bytes of a vocabulary.
func FuzzJSON(f *testing.F) {
	var all []string
	for b := range 256 {
		all = append(all, fmt.Sprintf(`"<0x%02X>":%d`, b, 10+b))
	}

	bytes256 := strings.Join(all, ",")
	for _, seed := range []string{
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]},"pre_tokenizer":{"type":"ByteLevel"}}`,
		`{"model":{"type":"BPE","vocab":{"a":0,"Ġ":1,"Ġa":2},"merges":["Ġ a"],"ignore_merges":true},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{L}+|\\s+(?!\\S)"},"behavior":"Isolated"},{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}}`,
		`{"added_tokens":[{"id":1,"content":"<a>","special":true},{"id":2,"content":"b","lstrip":true,"rstrip":true,"normalized":true}],"normalizer":{"type":"NFC"},"model":{"type":"BPE","vocab":{"a":0}},"pre_tokenizer":{"type":"ByteLevel"}}`,
		`{"added_tokens":[{"id":1,"content":"<s>","special":true},{"id":3,"content":"b","normalized":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"model":{"type":"BPE","unk_token":"u","byte_fallback":true,"vocab":{"u":0,"a":2,"▁":4,"▁a":5,@},"merges":["▁ a"]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"s"}},{"Sequence":{"id":"A"}}],"special_tokens":{"s":{"ids":[1]}}}}`,
		`{"model":{"type":"BPE","byte_fallback":true,"vocab":{@}},"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false}}`,
	} {
		_, _, err := FromJSON([]byte(strings.Replace(seed, "@", bytes256, 1)), nil)
		require.NoError(f, err, "a seed is a vocabulary")
		f.Add(seed, `{"bos_token":"<s>","eos_token":{"content":"a"},"add_bos_token":true}`, "a b 1")
		f.Add(seed, "", "ab<a><s>")
	}

	f.Fuzz(func(t *testing.T, file, config, text string) {
		tok, _, err := FromJSON([]byte(strings.Replace(file, "@", bytes256, 1)), []byte(config))
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Invalid)
			return
		}
		check(t, tok, text)
	})
}

// check encodes and decodes with any vocabulary.
func check(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	for _, o := range []Encode{{}, {Special: true}, {NoBOS: true}} {
		ids := tok.Encode(text, o)
		for _, id := range ids {
			require.True(t, id >= 0 && int(id) < tok.Vocab())
			if o.NoBOS {
				require.NotEqual(t, Control, tok.spec.Pieces[id].Kind)
			}
		}
		require.True(t, utf8.ValidString(decodeAll(tok, ids)))
	}
}

// FuzzRoundTrip: with all bytes in the vocabulary, any text comes back, and it
// contains no control token.
func FuzzRoundTrip(f *testing.F) {
	all := readGolden(f)
	var toks []*Tokenizer
	for _, name := range []string{"gpt2", "gpt2-prefix", "llama3", "smollm", "deepseek", "llama2", "metaspace-first", "metaspace-always", "metaspace-never"} {
		tok, _, err := FromJSON(all[name].Tokenizer, nil)
		require.NoError(f, err)
		s := tok.Spec()
		for i := range s.Pieces { // pieces that take white space with them
			s.Pieces[i].LStrip, s.Pieces[i].RStrip = false, false
		}
		toks = append(toks, mustNew(f, s))
	}

	toks = append(toks, mustNew(f, sentenceSpec(normal("▁a", 0), normal("▁", -1), normal("aa", -2))), mustNew(f, sentenceSpec()))
	for _, text := range []string{"", " ", "  a", "I'll <tool> <norm>\n\t 12 世界🙂", "<s></s><|end|>", "\x00\xff\xe4\xb8", "▁ ▁"} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		for i, tok := range toks {
			want := string([]rune(text))
			ids := tok.Encode(text, Encode{NoBOS: true})
			for _, id := range ids {
				require.NotEqual(t, Control, tok.spec.Pieces[id].Kind)
			}
			if s := tok.spec; s.Scheme == SentencePiece {
				want = strings.ReplaceAll(want, space, " ")
			}
			got := decodeAll(tok, ids)
			if tok.spec.SpacePrefix {
				// The tokens do not tell whether the space was the text's or the
				// prefix, and each piece taken whole has one after it.
				got, want = strings.ReplaceAll(got, " ", ""), strings.ReplaceAll(want, " ", "")
			}
			require.Equal(t, want, got, "vocabulary %d: %q", i, pieces(tok, ids))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	all := readGolden(b)
	text := strings.Repeat("It was the best of times, it was the worst of times; 1859 is the year.\n", 1000)
	for _, name := range []string{"gpt2", "llama3", "deepseek", "llama2"} {
		tok, _, err := FromJSON(all[name].Tokenizer, nil)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, Encode{})
			}
		})
	}
}
