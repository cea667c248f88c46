package llama

import (
	"context"

	"capgpu/gpuerr"
)

// Row is a token at a position of a sequence.
type Row struct {
	Seq      *Sequence
	Position int
	Token    int32
	Logits   bool // wanted for the token after it
}

// Step runs a pass. Afterwards every row's keys and values are in the cache, and
// Logits has the logits of the rows that asked, numbered in that order. Positions
// must be reserved. Rows of one sequence have consecutive positions. The first of
// them follows the written ones, or is before their end and replaces everything
// from there on. Any other row is gpuerr.Invalid, before anything runs.
//
// When ctx ends first, the pass is stopped. It then counts as not run, but the
// positions that it was to write hold anything.
func (m *Model) Step(ctx context.Context, rows []Row) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	m.steps.asked = 0
	logits, err := m.check(rows)
	if err != nil {
		return err
	}
	m.lay(rows, logits)
	if err := written(rows, m.pass(ctx, len(rows), logits)); err != nil {
		return err
	}
	m.steps.asked = logits
	return nil
}

// written records in the sequences how their pass ended, and returns err.
func written(rows []Row, err error) error {
	for i := range rows {
		q := rows[i].Seq
		if err == nil {
			q.next = q.scan
		} else {
			q.next = min(q.next, q.first)
		}
	}
	return err
}

// Logits are those of the i-th row of the last Step that asked for some, in memory shared
// with the device. They stay until the next Step, Greedy or Embed; after Close the memory
// is gone. Without such a row they are nil. When the session ends they become zeros, at
// any moment: see CopyLogits.
func (m *Model) Logits(i int) []float32 {
	if i < 0 || i >= m.steps.asked {
		return nil
	}
	vocab := m.b.config.Vocab
	return m.shared.logits[i*vocab : (i+1)*vocab : (i+1)*vocab]
}

// CopyLogits appends Logits(i) to out. An error means that the session has ended
// and that the logits may not be those of the pass; the model has then ended, too.
func (m *Model) CopyLogits(out []float32, i int) ([]float32, error) {
	if err := m.usable(context.Background()); err != nil {
		return out, err
	}
	to := append(out, m.Logits(i)...)
	if err := m.kept(); err != nil {
		return out, err
	}
	return to, nil
}

// pass runs the prepared batch.
func (m *Model) pass(ctx context.Context, rows, logits int) error {
	r := m.routines
	body := r.sizeFor(rows)
	if logits == 0 {
		return m.run(ctx, r.body[body])
	}
	if head := r.sizeFor(logits); head != body {
		return m.run(ctx, r.body[body], r.head[head])
	}
	return m.run(ctx, r.both[body])
}

// check checks every row and returns how many want logits.
func (m *Model) check(rows []Row) (logits int, err error) {
	if len(rows) == 0 || len(rows) > m.b.options.Batch {
		return 0, gpuerr.New(gpuerr.Invalid, "rows: %d are not within 1 to %d", len(rows), m.b.options.Batch)
	}

	m.steps.step++
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		if err := m.checkRowLocked(r.Seq, r.Token, r.Position, 1); err != nil {
			e := *gpuerr.From(err)
			e.Msg = gpuerr.New(e.Code, "row %d: %s", i, e.Msg).Msg
			return 0, &e
		}
		if r.Logits {
			logits++
		}
	}

	return logits, nil
}

// checkRowLocked checks a row of n tokens from a position on.
//
// +checklocks:m.pool.mu
func (m *Model) checkRowLocked(q *Sequence, token int32, position, n int) error {
	if q == nil || q.m != m {
		return gpuerr.New(gpuerr.Invalid, "sequence: there is none, or it is another model's")
	}
	if q.closed {
		return errClosed
	}
	if token < 0 || int(token) >= m.b.config.Vocab {
		return gpuerr.New(gpuerr.Invalid, "token: %d is not within 0 to %d", token, m.b.config.Vocab-1)
	}
	if reserved := q.reservedLocked(); position < 0 || n > reserved || position > reserved-n {
		return gpuerr.New(gpuerr.Invalid, "position: %d to %d are not among the %d that are reserved", position, position+n-1, reserved)
	}

	switch {
	case q.stamp != m.steps.step:
		if position > q.next {
			return gpuerr.New(gpuerr.Invalid, "position: %d goes on from %d that are written", position, q.next)
		}
		q.stamp, q.first = m.steps.step, position
	case position != q.scan:
		return gpuerr.New(gpuerr.Invalid, "position: %d does not follow the sequence's row before it, which was %d", position, q.scan-1)
	}

	q.scan = position + n
	return nil
}

// lay writes a batch where the device reads it: the rows that want logits first,
// then padding rows of no sequence up to a recorded size.
func (m *Model) lay(rows []Row, logits int) {
	at, rest := 0, logits
	for i := range rows {
		r := &rows[i]
		to := &rest
		if r.Logits {
			to = &at
		}
		m.layRow(*to, r.Token, r.Position, r.Seq.id)
		*to++
	}
	for i := len(rows); i < m.routines.sizes[m.routines.sizeFor(len(rows))]; i++ {
		m.layRow(i, 0, 0, NoSequence)
	}
}

func (m *Model) layRow(i int, token int32, position int, sequence uint32) {
	m.shared.tokens[i] = uint32(token)
	m.shared.rows[2*i], m.shared.rows[2*i+1] = uint32(position), sequence
}
