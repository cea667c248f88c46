package llama

import (
	"sync"

	"capgpu/gpuerr"
)

// pool has the free rows of the table of pages, and the free pages of the cache.
//
// A pass in flight may still write to a page that its sequence has given back. The
// page's next owner is not harmed: its own first pass comes later in the queue, and
// a row reads no position that its sequence has not written.
type pool struct {
	mu sync.Mutex
	// +checklocks:mu
	table []uint32 // [sequences][pages], shared with the device
	// +checklocks:mu
	pages []uint32 // free pages; the last is taken first
	// +checklocks:mu
	ids []uint32 // free rows of the table; likewise
	// +checklocks:mu
	closed bool

	page, rowPages, context, all int
}

// noPage marks an entry of the table without a page.
const noPage = 1<<32 - 1

// +checklocksignore: nobody else has it yet
func (p *pool) init(o *Options, pages int, table []uint32) {
	p.table, p.page, p.rowPages, p.context, p.all = table, o.PagePositions, o.tablePages(), o.Context, pages
	for i := range p.table {
		p.table[i] = noPage
	}
	p.pages, p.ids = make([]uint32, 0, pages), make([]uint32, 0, o.Sequences)
	for i := pages; i > 0; i-- {
		p.pages = append(p.pages, uint32(i-1))
	}
	for i := o.Sequences; i > 0; i-- {
		p.ids = append(p.ids, uint32(i-1))
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.table = true, nil
}

// Sequence is a text in the cache: positions from 0 on, each written by a pass.
type Sequence struct {
	m  *Model
	id uint32 // row of the table

	// These belong to the goroutine that steps. next is the number of written
	// positions, where a row may continue. first and scan are those of the Step
	// that stamp counts, before its end is known.
	next, first, scan int
	stamp             uint64

	// Guarded by m.pool.mu.
	pages  []uint32
	closed bool
}

// NewSequence makes a sequence without positions. gpuerr.Quota: there are as many
// as Options allow.
func (m *Model) NewSequence() (*Sequence, error) {
	p := &m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if len(p.ids) == 0 {
		e := gpuerr.Refused("sequences", 1, 0)
		e.Msg = "as many sequences are open as there can be"
		return nil, e
	}
	q := &Sequence{m: m, id: p.ids[len(p.ids)-1], pages: make([]uint32, 0, p.rowPages)}
	p.ids = p.ids[:len(p.ids)-1]
	return q, nil
}

var errClosed = gpuerr.New(gpuerr.Closed, "the model or the sequence is closed")

// Reserve makes sure that the sequence has room for this many positions in all. It
// keeps its room until Close. gpuerr.Quota reports in positions how many more were
// requested and are available; then nothing was taken.
func (q *Sequence) Reserve(positions int) error {
	p := &q.m.pool
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed || q.closed {
		return errClosed
	}
	if positions < 0 || positions > p.context {
		return gpuerr.New(gpuerr.Invalid, "positions: %d is not within 0 to the context of %d", positions, p.context)
	}

	more := pagesFor(positions, p.page) - len(q.pages)
	if more > len(p.pages) {
		e := gpuerr.Refused("positions", uint64(positions-len(q.pages)*p.page), uint64(len(p.pages)*p.page))
		e.Msg = "the cache of keys and values has no room"
		return e
	}

	row := p.table[int(q.id)*p.rowPages:]
	for range more {
		number := p.pages[len(p.pages)-1]
		p.pages = p.pages[:len(p.pages)-1]
		row[len(q.pages)] = number
		q.pages = append(q.pages, number)
	}

	return nil
}

// Reserved is the number of positions with room.
func (q *Sequence) Reserved() int {
	q.m.pool.mu.Lock()
	defer q.m.pool.mu.Unlock()
	return q.reservedLocked()
}

// reservedLocked needs m.pool.mu.
func (q *Sequence) reservedLocked() int {
	if q.closed {
		return 0
	}
	return min(len(q.pages)*q.m.pool.page, q.m.pool.context)
}

// Written is the number of positions that passes have written: the next row may be
// there or before. Only the goroutine that calls Step may call it.
func (q *Sequence) Written() int { return q.next }

// Close gives the pages back. Closing again does nothing.
func (q *Sequence) Close() {
	p := &q.m.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.closed {
		return
	}
	q.closed = true
	for len(q.pages) > 0 { // so that they are taken in the same order again
		last := len(q.pages) - 1
		p.pages = append(p.pages, q.pages[last])
		q.pages = q.pages[:last]
	}
	p.ids = append(p.ids, q.id)
}

// PagesUsed is the number of the cache's pages that sequences have. It may be
// called from any goroutine.
func (m *Model) PagesUsed() int {
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.pool.all - len(m.pool.pages)
}
