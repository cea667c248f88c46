package llama

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
)

// Blueprint is the plan of a model on a device: its buffers, their layout, and the
// launches of a pass. Load realizes it in a session. A program that runs the same
// launches elsewhere starts from it too.
type Blueprint struct {
	Buffers []BufferPlan

	config  model.Config
	options Options // all fields set
	uploads []upload

	pages int  // of the cache
	local bool // the device has memory of its own

	weights struct {
		embed  matrix
		layers []layerPlan
		norm   piece
		freqs  [2]piece // of layers that attend to all positions, and of local ones
		ones   piece    // [batch]
		output []matrix
		unit   piece // 1/√dim: rmsnorm with them makes vectors of length 1
	}

	// The intermediate results of a pass.
	work struct {
		x, n, qkv, att piece // [batch][…]
		part           piece // [batch][dim]: what is to be added, before its norm
		gu, h          piece
		logits         piece // [batch][vocab]
		sums, total    piece // [batch+1][dim], [dim]: see embed.go
	}

	// The inputs and outputs of a pass, in memory shared with the client.
	io struct {
		tokens, rows    piece // [batch], [batch][2]
		table           piece // [sequences][pages]
		history         piece // [batch][historyKeep]
		counted, vector piece // [batch+1], [dim]
	}
}

type layerPlan struct {
	attnNorm, ffnNorm    piece
	attnAfter, ffnAfter  piece // where there are
	bias, qNorm, kNorm   piece
	qkv, o, gateUp, down []matrix
	k, v                 piece // [pages][page][kvHeads][headDim]
}

// historyKeep is the number of a row's tokens that the device remembers: more than
// may be in flight.
const historyKeep = 64

// mostTableBytes bounds the table of pages; the options alone decide its size.
const mostTableBytes = 64 << 20

// Draw plans a model. pack is the maximal length of a buffer of several tensors; 0:
// the default. With positions 0 the cache has as many as all sequences can use.
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
	freqs, err := allFrequencies(f, o.Context)
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

func (b *Blueprint) placeWeights(l *layout, w *model.Weights, freqs [2][]float32) {
	t := &tensors{layout: l, turned: b.config.Turned, headDim: b.config.HeadDim}
	traits := b.config.Arch.Traits()
	b.weights.embed = t.stacked("embed", 0, []*model.Tensor{&w.Embed})
	for i := range w.Layers {
		from := &w.Layers[i]
		t.heads = []*model.Tensor{&from.Q, &from.K}
		name := func(tensor string) string { return fmt.Sprintf("layers.%d.%s", i, tensor) }
		plan := layerPlan{
			attnNorm: t.put(name("attnNorm"), from.AttnNorm.Data),
			qkv:      t.matrices(name("qkv"), &from.Q, &from.K, &from.V),
			o:        t.matrices(name("o"), &from.O),
			ffnNorm:  t.put(name("ffnNorm"), from.FFNNorm.Data),
			gateUp:   t.matrices(name("gateUp"), &from.Gate, &from.Up),
			down:     t.matrices(name("down"), &from.Down),
		}
		if traits.Biases {
			plan.bias = t.put(name("bias"), from.QBias.Data, from.KBias.Data, from.VBias.Data)
		}
		if traits.HeadNorms {
			plan.qNorm, plan.kNorm = t.put(name("qNorm"), from.QNorm.Data), t.put(name("kNorm"), from.KNorm.Data)
		}
		if traits.PostNorms {
			plan.attnAfter, plan.ffnAfter = t.put(name("attnAfter"), from.AttnAfter.Data), t.put(name("ffnAfter"), from.FFNAfter.Data)
		}
		b.weights.layers = append(b.weights.layers, plan)
	}

	b.weights.norm = t.put("norm", w.Norm.Data)
	if w.Tied() && w.Output.Type == w.Embed.Type && w.Output.Group == w.Embed.Group {
		b.weights.output = []matrix{b.weights.embed}
	} else {
		b.weights.output = t.matrices("output", &w.Output)
	}

	b.weights.freqs[0] = t.put("frequencies", f32Bytes(freqs[0]...))
	if b.weights.freqs[1] = b.weights.freqs[0]; freqs[1] != nil {
		b.weights.freqs[1] = t.put("localFrequencies", f32Bytes(freqs[1]...))
	}
	if traits.Biases {
		b.weights.ones = t.put("ones", bytes.Repeat(f32Bytes(1), b.options.Batch))
	}
	unit := make([]float32, b.config.Dim)
	for i := range unit {
		unit[i] = float32(1 / math.Sqrt(float64(b.config.Dim)))
	}

	b.weights.unit = t.put("unit", f32Bytes(unit...))
	b.uploads = t.uploads
}

func (b *Blueprint) placeCache(l *layout) {
	bytes := b.pageBytes() * uint64(b.pages)
	for i := range b.weights.layers {
		b.weights.layers[i].k = l.place(cache, fmt.Sprintf("layers.%d.keys", i), bytes)
		b.weights.layers[i].v = l.place(cache, fmt.Sprintf("layers.%d.values", i), bytes)
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
	b.work.x, b.work.n = place("residual", batch, c.Dim), place("normed", batch, c.Dim)
	b.work.qkv, b.work.att = place("qkv", batch, (c.Heads+2*c.KVHeads)*c.HeadDim), place("attention", batch, c.Heads*c.HeadDim)
	b.work.gu, b.work.h = place("gateUp", batch, 2*c.Hidden), place("hidden", batch, c.Hidden)
	if c.Arch.Traits().PostNorms {
		b.work.part = place("part", batch, c.Dim)
	}
	b.work.sums, b.work.total = place("sums", batch+1, c.Dim), place("total", 1, c.Dim)
}

func (b *Blueprint) placeShared(l *layout) {
	c, o := &b.config, &b.options
	place := func(name string, rows, words int) piece {
		return l.place(shared, name, 4*uint64(rows)*uint64(words))
	}
	b.io.tokens, b.io.rows, b.io.history = place("tokens", o.Batch, 1), place("rows", o.Batch, 2), place("history", o.Batch, historyKeep)
	b.io.table = place("table", o.Sequences, o.tablePages())
	b.io.counted, b.io.vector = place("counted", o.Batch+1, 1), place("vector", 1, c.Dim)
	b.work.logits = place("logits", o.Batch, c.Vocab)
}

// Fill copies the initial contents of a buffer of weights. A file that was
// truncated meanwhile is gpuerr.IO.
func (b *Blueprint) Fill(buffer int, memory []byte) error {
	return b.fill(buffer, copyBytes, func(off uint64, from []byte) error {
		return mapped.Copy(memory[off:off+uint64(len(from))], from)
	})
}

// copyBytes is the number of bytes copied between two checks of the context.
const copyBytes = 4 << 20

// fill has write write the initial contents of a buffer of weights, in parts of at most most
// bytes. They are the file's, which may be truncated meanwhile: see mapped.Copy.
func (b *Blueprint) fill(buffer, most int, write func(off uint64, from []byte) error) error {
	for i := range b.uploads {
		u := &b.uploads[i]
		if u.to.buffer != buffer {
			continue
		}
		off, from := u.to.off, u.from
		for len(from) > 0 {
			n := min(len(from), most)
			if err := write(off, from[:n]); err != nil {
				return err
			}
			off, from = off+uint64(n), from[n:]
		}
	}
	return nil
}

// uploadBytes is the total of the bytes to copy.
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

// forget releases the file.
func (b *Blueprint) forget() { b.uploads = nil }
