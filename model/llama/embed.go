package llama

import (
	"context"
	"encoding/binary"
	"math"

	"capgpu/gpuerr"
)

// The vector of a text is the mean of its final norms, made 1 long. The sum goes
// over several passes: each adds its rows, times 1, to the sum so far.
//
//	sums  [0] what was, [1…batch] the norms of this pass
//	total = counted · sums, and then sums[0] again
//	vector = rmsnorm(total) with weights 1/√dim: of length 1

// smallest keeps a text of only zeros from a division by zero.
const smallest = 1e-30

// clear begins a sum.
func (b *Blueprint) clear() []Launch {
	l := launches{b: b}
	l.add("fill_u32", words(0), rows(b.work.sums, 1, b.config.Dim))
	return l.all
}

// sum adds the rows of a batch.
func (b *Blueprint) sum(batch int) []Launch {
	l := launches{b: b}
	dim := b.config.Dim
	l.norm(b.weights.norm, b.work.x, b.work.sums.part(4*uint64(dim), b.work.sums.bytes-4*uint64(dim)), batch)
	l.add("matmul_f32", words(1, dim, batch+1), rows(b.io.counted, batch+1, 1), rows(b.work.sums, batch+1, dim), b.work.total)
	l.add("copy", nil, b.work.total, rows(b.work.sums, 1, dim))
	return l.all
}

// unit makes the vector of the sum.
func (b *Blueprint) unit() []Launch {
	l := launches{b: b}
	l.add("rmsnorm_f32", binary.LittleEndian.AppendUint32(words(b.config.Dim), math.Float32bits(smallest)), b.work.total, b.weights.unit, b.io.vector)
	return l.all
}

// Embed makes the vector of a text: Config.Dim elements, of length 1. It uses
// positions of the sequence from 0 on, which the caller has reserved, and
// overwrites the sequence's earlier text.
func (m *Model) Embed(ctx context.Context, q *Sequence, tokens []int32, out []float32) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	if dim := m.b.config.Dim; len(out) != dim {
		return gpuerr.New(gpuerr.Invalid, "out: has %d elements where the model's vectors have %d", len(out), dim)
	}
	if len(tokens) == 0 {
		return gpuerr.New(gpuerr.Invalid, "tokens: there are none")
	}

	m.steps.asked = 0
	if err := m.submit(m.routines.clear); err != nil {
		return err
	}

	batch := m.b.options.Batch
	for at := 0; at < len(tokens); at += batch {
		if err := m.embedRows(ctx, q, tokens[at:min(at+batch, len(tokens))], at); err != nil {
			return m.stop(ctx, err)
		}
	}

	if err := m.run(ctx, m.routines.unit); err != nil {
		return err
	}

	copy(out, m.shared.vector)
	return m.kept()
}

// embedRows runs a pass that adds its rows to the sum.
func (m *Model) embedRows(ctx context.Context, q *Sequence, tokens []int32, at int) error {
	rows := m.steps.embedding[:0]
	for i, t := range tokens {
		rows = append(rows, Row{Seq: q, Position: at + i, Token: t})
	}
	m.steps.embedding = rows
	if _, err := m.check(rows); err != nil {
		return err
	}
	m.lay(rows, 0)
	size := m.routines.sizeFor(len(rows))
	m.shared.counted[0] = 1
	for i := range m.routines.sizes[size] {
		m.shared.counted[1+i] = float32(asInt(i < len(rows)))
	}
	return written(rows, m.run(ctx, m.routines.body[size], m.routines.sum[size]))
}
