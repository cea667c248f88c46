package model

import (
	"fmt"
	"math"

	"capgpu/gpuerr"
	"capgpu/model/tokenizer"
)

// The bounds that every file must keep.
const (
	MaxLayers  = 1024
	MaxDim     = 1 << 16
	MaxHidden  = 1 << 18
	MaxHeads   = 1024
	MaxHeadDim = 256 // as the kernels
	MaxVocab   = 1 << 20
	MaxContext = 1 << 20
	MaxWindow  = 1 << 30
)

// Rope is which elements of a head form the rotated pairs.
type Rope uint8

const (
	RopeAdjacent Rope = iota // (2i, 2i+1): llama2.c, and GGUF of architecture llama
	RopeHalves               // (i, i+n/2): Hugging Face
)

// RopeScaling stretches the frequencies as Llama 3.1 does. Factor 0: no stretch.
type RopeScaling struct {
	Factor, LowFactor, HighFactor float64
	Original                      int // positions that the model was trained on first
}

// Config is the shape of a model. Fields from ScoreScale on are 0 where there is no such
// thing.
type Config struct {
	Arch                Arch
	Dim, Hidden, Layers int
	Heads, KVHeads      int // KVHeads divides Heads
	HeadDim             int // even
	Vocab, Context      int // tokens; positions
	NormEps             float32
	RopeBase            float64
	Rope                Rope
	Scaling             RopeScaling

	ScoreScale         float64 // factor of q·k; 0: 1/√HeadDim
	ScoreCap, LogitCap float64 // a score or a logit x becomes cap·tanh(x/cap)
	// Window is the number of positions, the row's own among them, to which a local layer
	// attends. Every GlobalEvery-th layer is not local; 0: all are.
	Window, GlobalEvery int
	LocalRopeBase       float64 // RopeBase of local layers, which then have no Scaling and no factors
	RopeScale           float64 // factor of what is turned; 0: 1
	Turned              int     // elements at the beginning of a head that are turned, where not all are
	// LongAfter is the longest context for which Weights.RopeFactors are; a longer one has
	// Weights.LongFactors.
	LongAfter int
}

// Check returns an error that names the field if the shape is impossible.
func (c *Config) Check() error {
	for _, f := range []struct {
		name        string
		value, most int
	}{
		{"dim", c.Dim, MaxDim}, {"hidden", c.Hidden, MaxHidden}, {"layers", c.Layers, MaxLayers},
		{"heads", c.Heads, MaxHeads}, {"kvHeads", c.KVHeads, MaxHeads}, {"headDim", c.HeadDim, MaxHeadDim},
		{"vocab", c.Vocab, MaxVocab}, {"context", c.Context, MaxContext},
	} {
		if f.value < 1 || f.value > f.most {
			return gpuerr.New(gpuerr.Invalid, "%s: %d is not within 1 to %d", f.name, f.value, f.most)
		}
	}

	switch {
	case c.Heads%c.KVHeads != 0:
		return gpuerr.New(gpuerr.Invalid, "kvHeads: %d do not divide the %d heads", c.KVHeads, c.Heads)
	case c.HeadDim%2 != 0:
		return gpuerr.New(gpuerr.Invalid, "headDim: %d is odd", c.HeadDim)
	case !(c.NormEps >= 0 && c.NormEps < 1):
		return gpuerr.New(gpuerr.Invalid, "normEps: %g is not within 0 to 1", c.NormEps)
	case !(c.RopeBase >= 1 && c.RopeBase <= 1e12):
		return gpuerr.New(gpuerr.Invalid, "ropeBase: %g is not within 1 to 1e12", c.RopeBase)
	}

	if err := c.checkOptions(); err != nil {
		return err
	}

	if s := c.Scaling; s.Factor != 0 {
		ok := s.Factor >= 1 && s.Factor <= 1e6 && s.LowFactor > 0 && s.HighFactor > s.LowFactor &&
			!math.IsInf(s.HighFactor, 0) && s.Original >= 1 && s.Original <= MaxContext
		if !ok {
			return gpuerr.New(gpuerr.Invalid, "ropeScaling: %+v is not possible", s)
		}
	}

	return nil
}

// checkOptions checks the fields that are 0 where there is no such thing.
func (c *Config) checkOptions() error {
	if c.Arch >= Archs {
		return gpuerr.New(gpuerr.Invalid, "arch: %d is not known", c.Arch)
	}

	for _, f := range []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"scoreScale", c.ScoreScale, 1e-6, 1e6}, {"scoreCap", c.ScoreCap, 1e-3, 1e9}, {"logitCap", c.LogitCap, 1e-3, 1e9},
		{"localRopeBase", c.LocalRopeBase, 1, 1e12}, {"window", float64(c.Window), 1, MaxWindow},
		{"ropeScale", c.RopeScale, 1e-3, 1e3}, {"turned", float64(c.Turned), 2, float64(c.HeadDim)}, {"globalEvery", float64(c.GlobalEvery), 2, MaxLayers}, {"longAfter", float64(c.LongAfter), 1, MaxContext},
	} {
		if f.value != 0 && !(f.value >= f.least && f.value <= f.most) {
			return gpuerr.New(gpuerr.Invalid, "%s: %g is not within %g to %g", f.name, f.value, f.least, f.most)
		}
	}

	traits := c.Arch.Traits()
	if c.Turned%2 != 0 || c.Turned != 0 && (c.Rope != RopeHalves || traits.Biases || traits.HeadNorms) {
		return gpuerr.New(gpuerr.Invalid, "turned: %d elements of a head in part are not supported here", c.Turned)
	}

	return nil
}

// Type is the storage format of a tensor's elements.
type Type uint8

const (
	F32  Type = iota
	F16       // IEEE 754 binary16
	BF16      // the upper half of an F32
	Q8_0      // GGUF: 32 elements in 34 bytes, an F16 scale and 32 signed bytes
	Q4_0      // GGUF: 32 elements in 18 bytes, an F16 scale and 16 bytes: element i low, element i+16 high, minus 8
	I8        // llama2.c version 2: signed bytes, and an F32 scale for each Group of them, apart

	// GGUF's other block types (ggml-common.h, block_*), which only the kernels decode.
	Q4_1
	Q5_0
	Q5_1
	IQ4_NL
	MXFP4
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_XS

	Types // their number
)

var types = [Types]struct {
	name            string
	elements, bytes int // of a block
}{
	F32: {"f32", 1, 4}, F16: {"f16", 1, 2}, BF16: {"bf16", 1, 2}, Q8_0: {"q8_0", 32, 34}, Q4_0: {"q4_0", 32, 18}, I8: {"i8", 1, 1},
	Q4_1: {"q4_1", 32, 20}, Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24}, IQ4_NL: {"iq4_nl", 32, 18}, MXFP4: {"mxfp4", 32, 17},
	Q2_K: {"q2_k", 256, 84}, Q3_K: {"q3_k", 256, 110}, Q4_K: {"q4_k", 256, 144}, Q5_K: {"q5_k", 256, 176}, Q6_K: {"q6_k", 256, 210},
	IQ4_XS: {"iq4_xs", 256, 136},
}

// String is the suffix of the kernels' names: "q8_0".
func (t Type) String() string {
	if t < Types {
		return types[t].name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Block returns the size of a block in elements and in bytes; rows are whole
// blocks.
func (t Type) Block() (elements, bytes int) {
	if t < Types {
		return types[t].elements, types[t].bytes
	}
	return 1, 4
}

// Packed reports whether only the kernels decode a type.
func (t Type) Packed() bool { return t > I8 && t < Types }

// Tensor is a matrix, row-major, or a vector (one row), in the mapped file. Its
// bytes are not trusted: a process that can write the file can change them at any
// time.
type Tensor struct {
	Type       Type
	Rows, Cols int
	Data       []byte
	Scales     []byte // of I8: F32, Rows*Cols/Group of them
	Group      int    // of I8: divides Cols
}

// Bytes is the length of Data that the shape requires.
func (t *Tensor) Bytes() int {
	e, b := t.Type.Block()
	return t.Rows * t.Cols / e * b
}

// Layer is the tensors of one transformer block; the matrices are [out][in].
type Layer struct {
	AttnNorm, FFNNorm Tensor // F32, Dim
	Q, K, V           Tensor // [Heads*HeadDim][Dim], [KVHeads*HeadDim][Dim] twice
	O                 Tensor // [Dim][Heads*HeadDim]
	Gate, Up, Down    Tensor // [Hidden][Dim] twice, [Dim][Hidden]

	QBias, KBias, VBias Tensor // F32, as many as the rows of Q, K, V; where Traits.Biases
	QNorm, KNorm        Tensor // F32, HeadDim; where Traits.HeadNorms
	AttnAfter, FFNAfter Tensor // F32, Dim: of what is added; where Traits.PostNorms
}

// Weights are all tensors. Output's Data is Embed's if the classifier is tied.
type Weights struct {
	Embed  Tensor // [Vocab][Dim]
	Layers []Layer
	Norm   Tensor // F32, Dim
	Output Tensor // [Vocab][Dim]
	// RopeFactors divides the frequency of each pair, if a file has its own factors
	// (rope_freqs.weight); F32, TurnedDim/2, or empty. LongFactors are those of contexts
	// beyond Config.LongAfter; there where that is not 0.
	RopeFactors, LongFactors Tensor
}

// Tied reports whether the classifier is the table of embeddings.
func (w *Weights) Tied() bool {
	return len(w.Output.Data) > 0 && len(w.Embed.Data) > 0 && &w.Output.Data[0] == &w.Embed.Data[0]
}

// File is a model in a mapped file. Nobody may use its tensors after Close.
type File struct {
	Name      string // "stories260K"
	Format    string // "gguf", "llama2c", "safetensors"
	Config    Config
	Weights   Weights
	Tokenizer *tokenizer.Tokenizer
	// Template is the chat template of the file, in Jinja; "" if it has none.
	Template string

	close func() error
}

// NewFile is a File that close unmaps.
func NewFile(f File, close func() error) *File {
	f.close = close
	return &f
}

// Close unmaps the file.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	c := f.close
	f.close = nil
	return c()
}
