package tokenizer

import "slices"

// The expressions that tokenizer.json files have.
const (
	gpt2Split = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	contractions = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	afterWords   = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llama3Split  = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + afterWords
	qwen2Split   = contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + afterWords

	upper       = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lower       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	afterCases  = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenSplit = upper + `*` + lower + `+|` + upper + `+` + lower + `*|\p{N}` + afterCases
	gpt4oSplit  = upper + `*` + lower + `+` + contractions + `?|` + upper + `+` + lower + `*` + contractions + `?|\p{N}{1,3}` + afterCases

	// The letters of deepseek-llm are those of scripts with two cases.
	cased = `A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}` +
		`ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃`
	hanAndHangul = "[一-龥ࠀ-一가-\uD7FF]+"
)

// named is the expressions of GGUF's tokenizer.ggml.pre (llama.cpp, llama-vocab.cpp).
var named = map[string][]string{
	"gpt-2":          {gpt2Split},
	"llama-bpe":      {llama3Split},
	"qwen2":          {qwen2Split},
	"smollm":         {`\p{N}`, gpt2Split},
	"falcon":         {"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2Split, `[0-9][0-9][0-9]`},
	"tekken":         {tekkenSplit},
	"gpt-4o":         {gpt4oSplit},
	"deepseek-llm":   {`[\r\n]`, `\s?[` + cased + `]+`, `\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, hanAndHangul, `\p{N}+`},
	"deepseek-coder": {`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, hanAndHangul, `\p{N}`},
	"deepseek-v3": {`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`,
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
	"bloom": {` ?[^(\s|.,!?…。，、।۔،)]+`},
}

// alike lists names that split text as another name does.
var alike = map[string]string{
	"": "gpt-2", "default": "gpt-2", "gpt2": "gpt-2", "mpt": "gpt-2", "olmo": "gpt-2", "jais": "gpt-2", "trillion": "gpt-2", "phi-2": "gpt-2",
	"llama3": "llama-bpe", "llama-v3": "llama-bpe", "dbrx": "llama-bpe", "smaug-bpe": "llama-bpe", "falcon3": "llama-bpe", "pixtral": "tekken",
	"glm4": "llama-bpe", "chatglm-bpe": "llama-bpe", "stablelm2": "qwen2", "hunyuan": "qwen2", "deepseek-r1-qwen": "qwen2", "megrez": "qwen2",
	"starcoder": "smollm", "refact": "smollm", "command-r": "smollm", "codeshell": "smollm", "exaone": "smollm", "minerva-7b": "smollm",
	"poro-chat": "bloom", "gpt3-finnish": "bloom", "llama4": "gpt-4o", "deepseek3": "deepseek-v3", "hunyuan-dense": "deepseek-v3",
}

// namedSplits is the expressions of a name.
func namedSplits(name string) ([]string, bool) {
	if as, ok := alike[name]; ok {
		name = as
	}
	exprs, ok := named[name]
	return exprs, ok
}

// covers reports whether the matches of an expression cover every text.
func covers(expr string) bool {
	return slices.Contains([]string{gpt2Split, llama3Split, qwen2Split, tekkenSplit, gpt4oSplit}, expr)
}
