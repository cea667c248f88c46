package model

import "math"

// Arch is a family of models. Its traits say how the pass of one differs from Llama's;
// the numbers of one model are in its Config.
type Arch uint8

const (
	Llama Arch = iota // and Mistral
	Qwen2
	Qwen3
	Gemma
	Gemma2
	Gemma3
	Phi3

	Archs // their number
)

// Traits describe a family. The zero value is Llama's.
type Traits struct {
	// GGUF is general.architecture; Classes are names in architectures of config.json,
	// Types those in model_type.
	GGUF           string
	Classes, Types []string
	GGUFRope       Rope // the order in GGUF; in Hugging Face's files it is RopeHalves

	Biases      bool // vectors are added to Q, K and V
	HeadNorms   bool // each head of Q and K is normalised before it is turned
	PostNorms   bool // what attention and feed-forward add is normalised before
	GELU        bool // the gate is GELU (its approximation by tanh), not SiLU
	ScaledEmbed bool // embeddings are multiplied by √Dim
	MinusOne    bool // Hugging Face's files have norms less 1
	Tied        bool // the classifier is the table of embeddings, if nothing is said
	Stacked     bool // files have Q, K, V in one tensor, and Gate, Up
}

// The descriptions are those of the families' papers and of the configuration pages of
// Hugging Face transformers; GGUF names are those of gguf-py, constants.py.
var traits = [Archs]Traits{
	Llama: {GGUF: "llama", Classes: []string{"LlamaForCausalLM", "MistralForCausalLM"}, Types: []string{"llama", "mistral"}},
	Qwen2: {GGUF: "qwen2", Classes: []string{"Qwen2ForCausalLM"}, Types: []string{"qwen2"}, GGUFRope: RopeHalves, Biases: true},
	Qwen3: {GGUF: "qwen3", Classes: []string{"Qwen3ForCausalLM"}, Types: []string{"qwen3"}, GGUFRope: RopeHalves, HeadNorms: true},
	Gemma: {GGUF: "gemma", Classes: []string{"GemmaForCausalLM"}, Types: []string{"gemma"}, GGUFRope: RopeHalves,
		GELU: true, ScaledEmbed: true, MinusOne: true, Tied: true},
	Gemma2: {GGUF: "gemma2", Classes: []string{"Gemma2ForCausalLM"}, Types: []string{"gemma2"}, GGUFRope: RopeHalves,
		GELU: true, ScaledEmbed: true, MinusOne: true, Tied: true, PostNorms: true},
	Gemma3: {GGUF: "gemma3", Classes: []string{"Gemma3ForCausalLM"}, Types: []string{"gemma3_text"}, GGUFRope: RopeHalves,
		GELU: true, ScaledEmbed: true, MinusOne: true, Tied: true, PostNorms: true, HeadNorms: true},
	Phi3: {GGUF: "phi3", Classes: []string{"Phi3ForCausalLM"}, Types: []string{"phi3"}, GGUFRope: RopeHalves, Stacked: true},
}

// Traits are those of the family; of an unknown one Llama's.
func (a Arch) Traits() Traits {
	if a < Archs {
		return traits[a]
	}
	return traits[Llama]
}

// String is the name in GGUF: "qwen2".
func (a Arch) String() string { return a.Traits().GGUF }

// Local reports whether a layer attends to the last Window positions only.
func (c *Config) Local(layer int) bool {
	return c.Window > 0 && (c.GlobalEvery == 0 || (layer+1)%c.GlobalEvery != 0)
}

// TurnedDim is the number of elements of a head that are turned by the position.
func (c *Config) TurnedDim() int {
	if c.Turned != 0 {
		return c.Turned
	}
	return c.HeadDim
}

// Scale is the factor of the products of queries and keys.
func (c *Config) Scale() float64 {
	if c.ScoreScale != 0 {
		return c.ScoreScale
	}
	return 1 / math.Sqrt(float64(c.HeadDim))
}

// EmbedScale is the factor of the embeddings.
func (c *Config) EmbedScale() float64 {
	if c.Arch.Traits().ScaledEmbed {
		return math.Sqrt(float64(c.Dim))
	}
	return 1
}
