package llama

import (
	"encoding/binary"
	"fmt"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
)

// Blueprint is what a model becomes on a device, before there is one: its buffers, what
// lies where, and the launches of a pass. Load makes it true in a session; who runs the
// same launches elsewhere begins here too.
type Blueprint struct {
	Buffers []BufferPlan

	config  model.Config
	options Options // all fields set
	uploads []upload

	embed           matrix
	layers          []layerPlan
	norm, freqs     piece
	output          []matrix
	unitWeights     piece // 1/√dim: rmsnorm with them makes vectors of length 1
	pages           int   // of the cache
	x, n, qkv, att  piece // [batch][…]
	gu, h           piece
	logits          piece // [batch][vocab]
	sums, total     piece // [batch+1][dim], [dim]: see embed.go
	tokens, rows    piece // [batch], [batch][2]
	table           piece // [sequences][pages]
	history         piece // [batch][historyKeep]
	counted, vector piece // [batch+1], [dim]
}

type layerPlan struct {
	attnNorm, ffnNorm    piece
	qkv, o, gateUp, down []matrix
	k, v                 piece // [pages][page][kvHeads][headDim]
}

// historyKeep is how many tokens of a row the device remembers: more than are on their
// way at a time.
const historyKeep = 64

// mostTableBytes bounds the table of pages, which the options alone decide.
const mostTableBytes = 64 << 20

// Draw plans a model. pack is how long a buffer of several tensors is at most, and 0 the
// usual; with positions 0 the cache has all that sequences can use.
func Draw(f *model.File, o Options, pack uint64) (*Blueprint, error) {
	if err := checkFile(f); err != nil {
		return nil, err
	}
	o, err := o.withDefaults(&f.Config)
	if err != nil {
		return nil, err
	}
	if o.Positions == 0 {
		o.Positions = o.mostPositions()
	}
	if bytes := 4 * uint64(o.Sequences) * uint64(o.tablePages()); bytes > mostTableBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "sequences, context: a table of pages of %d bytes is more than %d", bytes, mostTableBytes)
	}
	if pack == 0 {
		pack = packBytes
	}
	b := &Blueprint{config: f.Config, options: o, pages: pagesFor(o.Positions, o.PagePositions)}
	freqs, err := frequencies(&f.Config, &f.Weights.RopeFactors)
	if err != nil {
		return nil, err
	}
	l := &layout{pack: pack}
	b.placeWeights(l, &f.Weights, freqs)
	b.placeCache(l)
	b.placeWork(l)
	b.placeShared(l)
	b.Buffers = l.buffers
	return b, nil
}

func (b *Blueprint) placeWeights(l *layout, w *model.Weights, freqs []float32) {
	t := &tensors{layout: l}
	b.embed = t.stacked("embed", 0, []*model.Tensor{&w.Embed})
	for i := range w.Layers {
		from := &w.Layers[i]
		name := func(tensor string) string { return fmt.Sprintf("layers.%d.%s", i, tensor) }
		b.layers = append(b.layers, layerPlan{
			attnNorm: t.put(name("attnNorm"), from.AttnNorm.Data),
			qkv:      t.matrices(name("qkv"), &from.Q, &from.K, &from.V),
			o:        t.matrices(name("o"), &from.O),
			ffnNorm:  t.put(name("ffnNorm"), from.FFNNorm.Data),
			gateUp:   t.matrices(name("gateUp"), &from.Gate, &from.Up),
			down:     t.matrices(name("down"), &from.Down),
		})
	}
	b.norm = t.put("norm", w.Norm.Data)
	if w.Tied() && w.Output.Type == w.Embed.Type && w.Output.Group == w.Embed.Group {
		b.output = []matrix{b.embed}
	} else {
		b.output = t.matrices("output", &w.Output)
	}
	b.freqs = t.put("frequencies", f32Bytes(freqs...))
	unit := make([]float32, b.config.Dim)
	for i := range unit {
		unit[i] = float32(1 / math.Sqrt(float64(b.config.Dim)))
	}
	b.unitWeights = t.put("unit", f32Bytes(unit...))
	b.uploads = t.uploads
}

func (b *Blueprint) placeCache(l *layout) {
	bytes := b.pageBytes() * uint64(b.pages)
	for i := range b.layers {
		b.layers[i].k = l.place(cache, fmt.Sprintf("layers.%d.keys", i), bytes)
		b.layers[i].v = l.place(cache, fmt.Sprintf("layers.%d.values", i), bytes)
	}
}

// pageBytes is a page of the keys of a layer, or of its values.
func (b *Blueprint) pageBytes() uint64 {
	return 4 * uint64(b.options.PagePositions) * uint64(b.config.KVHeads*b.config.HeadDim)
}

func (b *Blueprint) placeWork(l *layout) {
	c := &b.config
	place := func(name string, rows, words int) piece {
		return l.place(work, name, 4*uint64(rows)*uint64(words))
	}
	batch := b.options.Batch
	b.x, b.n = place("residual", batch, c.Dim), place("normed", batch, c.Dim)
	b.qkv, b.att = place("qkv", batch, (c.Heads+2*c.KVHeads)*c.HeadDim), place("attention", batch, c.Heads*c.HeadDim)
	b.gu, b.h = place("gateUp", batch, 2*c.Hidden), place("hidden", batch, c.Hidden)
	b.sums, b.total = place("sums", batch+1, c.Dim), place("total", 1, c.Dim)
}

func (b *Blueprint) placeShared(l *layout) {
	c, o := &b.config, &b.options
	place := func(name string, rows, words int) piece {
		return l.place(shared, name, 4*uint64(rows)*uint64(words))
	}
	b.tokens, b.rows, b.history = place("tokens", o.Batch, 1), place("rows", o.Batch, 2), place("history", o.Batch, historyKeep)
	b.table = place("table", o.Sequences, o.tablePages())
	b.counted, b.vector = place("counted", o.Batch+1, 1), place("vector", 1, c.Dim)
	b.logits = place("logits", o.Batch, c.Vocab)
}

// Fill copies what a buffer of weights begins with. A file that was truncated meanwhile
// is gpuerr.IO.
func (b *Blueprint) Fill(buffer int, memory []byte) error {
	return b.fill(buffer, memory, func(uint64) error { return nil })
}

// copyBytes is how much is copied between two looks at the context.
const copyBytes = 4 << 20

// fill is Fill with a word after each few megabytes.
func (b *Blueprint) fill(buffer int, memory []byte, copied func(bytes uint64) error) error {
	for i := range b.uploads {
		u := &b.uploads[i]
		if u.to.buffer != buffer {
			continue
		}
		to, from := memory[u.to.off:u.to.off+u.to.bytes], u.from
		for len(from) > 0 {
			n := min(len(from), copyBytes)
			if err := mapped.Copy(to[:n], from[:n]); err != nil {
				return err
			}
			to, from = to[n:], from[n:]
			if err := copied(uint64(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// uploadBytes is what there is to copy in all.
func (b *Blueprint) uploadBytes() uint64 {
	var sum uint64
	for i := range b.uploads {
		sum += uint64(len(b.uploads[i].from))
	}
	return sum
}

func f32Bytes(values ...float32) []byte {
	b := make([]byte, 0, 4*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// forget lets go of the file.
func (b *Blueprint) forget() { b.uploads = nil }
