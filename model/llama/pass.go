package llama

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"capgpu/model"
)

// Launch is one launch of a pass, independent of any session.
type Launch struct {
	Program  string // of package program/library
	Bindings []Binding
	Inline   []byte
}

// Binding is a part of a buffer of the Blueprint.
type Binding struct {
	Buffer     int
	Off, Bytes uint64
}

// NoSequence is the sequence of a row that only fills up a batch.
const NoSequence = math.MaxUint32

// launches collects the launches of a part of a pass.
type launches struct {
	b   *Blueprint
	all []Launch
}

func (l *launches) add(program string, inline []byte, pieces ...piece) {
	x := Launch{Program: program, Inline: inline}
	for _, p := range pieces {
		x.Bindings = append(x.Bindings, Binding{p.buffer, p.off, p.bytes})
	}
	l.all = append(l.all, x)
}

// rows is the first n rows of a piece of f32 or u32, each of this many words.
func rows(p piece, n, words int) piece { return p.part(0, 4*uint64(n)*uint64(words)) }

// linear is y = W·x or y += W·x, for each row of the batch.
func (l *launches) linear(projection []matrix, x, y piece, batch, width int, add bool) {
	for i := range projection {
		m := &projection[i]
		inline := words(m.rows, m.cols, batch, asInt(add), width, m.at)
		x, y := rows(x, batch, m.cols), rows(y, batch, width)
		if m.typ == model.I8 {
			l.add("linear_i8", append(inline, words(m.group)...), m.w, m.scales, x, y)
		} else {
			l.add("linear_"+m.typ.String(), inline, m.w, x, y)
		}
	}
}

func (l *launches) norm(w, x, y piece, batch int) {
	dim, eps := l.b.config.Dim, l.b.config.NormEps
	l.add("rmsnorm_f32", binary.LittleEndian.AppendUint32(words(dim), math.Float32bits(eps)), rows(x, batch, dim), w, rows(y, batch, dim))
}

func (l *launches) embed(batch int) {
	b := l.b
	dim, tokens, x := b.config.Dim, rows(b.io.tokens, batch, 1), rows(b.work.x, batch, b.config.Dim)
	to := x
	if b.config.EmbedScale() != 1 {
		to = rows(b.work.n, batch, dim)
	}
	if m := &b.weights.embed; m.typ == model.I8 {
		l.add("embed_i8", words(dim, m.group), m.w, m.scales, tokens, to)
	} else {
		l.add("embed_"+m.typ.String(), words(dim), m.w, tokens, to)
	}
	if to != x {
		l.add("fill_u32", words(0), x)
		l.add("saxpy_f32", f32Bytes(float32(b.config.EmbedScale())), to, x)
	}
}

// Body computes the residual of a batch: everything up to the final norm.
func (b *Blueprint) Body(batch int) []Launch {
	l := launches{b: b}
	c := &b.config
	traits := c.Arch.Traits()
	activation := "swiglu_rows_f32"
	if traits.GELU {
		activation = "geglu_rows_f32"
	}

	l.embed(batch)
	for i := range b.weights.layers {
		layer := &b.weights.layers[i]
		l.norm(layer.attnNorm, b.work.x, b.work.n, batch)
		l.attend(i, batch, &traits)
		l.addTo(layer.o, b.work.att, layer.attnAfter, batch, &traits)
		l.norm(layer.ffnNorm, b.work.x, b.work.n, batch)
		l.linear(layer.gateUp, b.work.n, b.work.gu, batch, 2*c.Hidden, false)
		l.add(activation, words(c.Hidden), rows(b.work.gu, batch, 2*c.Hidden), rows(b.work.h, batch, c.Hidden))
		l.addTo(layer.down, b.work.h, layer.ffnAfter, batch, &traits)
	}

	return l.all
}

// attend makes the attention of a layer from the norm of its input.
func (l *launches) attend(i, batch int, traits *model.Traits) {
	b := l.b
	c, o, layer := &b.config, &b.options, &b.weights.layers[i]
	qkvDim := (c.Heads + 2*c.KVHeads) * c.HeadDim
	rowsOf, table := rows(b.io.rows, batch, 2), b.io.table
	qkv, att := rows(b.work.qkv, batch, qkvDim), rows(b.work.att, batch, c.Heads*c.HeadDim)
	l.linear(layer.qkv, b.work.n, qkv, batch, qkvDim, false)
	if traits.Biases { // a matrix of one column, times 1
		l.add("linear_f32", words(qkvDim, 1, batch, 1, qkvDim, 0), layer.bias, rows(b.weights.ones, batch, 1), qkv)
	}
	if traits.HeadNorms {
		l.add("head_norm_f32", append(words(c.Heads, c.KVHeads, c.HeadDim, batch), f32Bytes(c.NormEps)...), qkv, layer.qNorm, layer.kNorm)
	}

	freqs, window := b.weights.freqs[0], 0
	if c.Local(i) {
		freqs, window = b.weights.freqs[1], c.Window
	}
	turn := words(c.Heads, c.KVHeads, c.HeadDim, batch, int(c.Rope), o.PagePositions, o.tablePages())
	l.add("rope_cache_f32", append(turn, f32Bytes(float32(cmp.Or(c.RopeScale, 1)))...),
		qkv, freqs, rowsOf, table, layer.k, layer.v)
	scores := f32Bytes(scoreScale(c), float32(c.ScoreCap))
	l.add("attention_cache_f32", append(words(c.Heads, c.KVHeads, c.HeadDim, batch, o.PagePositions, o.tablePages(), window), scores...),
		qkv, rowsOf, table, layer.k, layer.v, att)
}

// scoreScale is Config.Scale; the usual one has the bits of attention_f32.
func scoreScale(c *model.Config) float32 {
	if c.ScoreScale != 0 {
		return float32(c.ScoreScale)
	}
	return 1 / float32(math.Sqrt(float64(c.HeadDim)))
}

// addTo adds W·x to the residual, or its norm.
func (l *launches) addTo(projection []matrix, x, after piece, batch int, traits *model.Traits) {
	b, dim := l.b, l.b.config.Dim
	if !traits.PostNorms {
		l.linear(projection, x, b.work.x, batch, dim, true)
		return
	}
	l.linear(projection, x, b.work.part, batch, dim, false)
	l.norm(after, b.work.part, b.work.n, batch)
	l.add("saxpy_f32", f32Bytes(1), rows(b.work.n, batch, dim), rows(b.work.x, batch, dim))
}

// Head computes logits of the first rows of a batch.
func (b *Blueprint) Head(batch int) []Launch {
	l := launches{b: b}
	l.norm(b.weights.norm, b.work.x, b.work.n, batch)
	l.linear(b.weights.output, b.work.n, b.work.logits, batch, b.config.Vocab, false)
	if limit := b.config.LogitCap; limit != 0 {
		l.add("softcap_f32", f32Bytes(float32(limit)), rows(b.work.logits, batch, b.config.Vocab))
	}
	return l.all
}

// Next chooses the next tokens of the first rows, and puts them where the next pass
// begins.
func (b *Blueprint) Next(batch int) []Launch {
	l := launches{b: b}
	vocab := b.config.Vocab
	l.add("next_token_f32", words(vocab, batch, historyKeep),
		rows(b.work.logits, batch, vocab), rows(b.io.tokens, batch, 1), rows(b.io.rows, batch, 2), rows(b.io.history, batch, historyKeep))
	return l.all
}

// programs lists all programs of the launches, each once.
func (b *Blueprint) programs() []string {
	var names []string
	seen := map[string]bool{}
	for _, part := range [][]Launch{b.Body(1), b.Head(1), b.Next(1), b.clear(), b.sum(1), b.unit()} {
		for i := range part {
			if name := part[i].Program; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// words are inline arguments of type u32. All are within the bounds of a model, and
// not negative.
func words(values ...int) []byte {
	b := make([]byte, 0, 4*len(values)+4)
	for _, v := range values {
		if v < 0 || v > math.MaxUint32 {
			panic(fmt.Sprintf("llama: %d is no u32", v)) // Blueprint has checked
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func le32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
