package lane

import (
	"fmt"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// Finding is one finding of the checker.
type Finding struct {
	Kind      outcome.TrapKind `json:"kind"`
	Source    string           `json:"source,omitempty"` // "reduce.comp:12", where the module has lines
	Off       uint32           `json:"off"`              // of the instruction, in bytes from the start of the module
	Message   string           `json:"message"`
	Workgroup uint32           `json:"workgroup"`
	Lane      uint32           `json:"lane"`
	OtherLane uint32           `json:"otherLane"` // in a race: the earlier user of the memory
	Binding   uint16           `json:"binding"`   // outcome.NoBinding: shared memory
	Offset    uint64           `json:"offset"`    // bytes from the start of the binding or variable
}

// String is "dataRace at reduce.comp:12: lane 3 of workgroup 0 reads …".
func (f Finding) String() string {
	at := f.Source
	if at == "" {
		at = fmt.Sprintf("byte %d of the module", f.Off)
	}
	return fmt.Sprintf("%v at %s: %s", f.Kind, at, f.Message)
}

const (
	maxFindings = 64
	shadowCells = 1 << 16 // for all buffers, a power of two
)

// checker checks every access of a checked kernel. For each piece of memory it
// keeps the last users, and their epoch, which is the time between two barriers.
// Two lanes race if they use the same bytes in one epoch, one of them to write, and
// not both atomically; lanes of two workgroups race in any epoch. Two writes of the
// same value are allowed. A barrier of a subgroup orders its lanes; the checker
// does not keep which of them reached it, so it may miss a race.
//
// It keeps the state of every byte of shared memory. Buffers have a table of fixed
// size in which new entries replace old ones, so races between accesses far apart
// in time may go unnoticed. Workgroups are compared with those that the same worker
// ran in the same Run, and not at all in a program with fences of buffers, by which
// workgroups may well pass data to each other.
type checker struct {
	k        *Kernel
	shared   []cell
	buffers  []cell
	run      uint32
	epoch    uint32
	sub      uint32
	findings []Finding
	seen     map[place]bool
}

type place struct {
	off  uint32
	kind outcome.TrapKind
}

// user is one user of a piece of memory. The zero user is none.
type user struct {
	epoch uint32 // counts from 1 over all workgroups of a worker
	group uint32
	sub   uint32 // counts the barriers of subgroups
	lane  uint16
	more  bool // others did too, in the same epoch
}

// cell is the state of a piece of memory: a word, or a byte in programs with
// smaller accesses.
type cell struct {
	key                  uint64 // of a buffer: binding and number of the piece
	run                  uint32
	written              bool
	value                uint32
	writer, reader, amid user // amid: the last atomic user
}

func checkerBytes(k *Kernel) int { return (shadowCells+k.shared/k.piece)*72 + 16<<10 }

func newChecker(k *Kernel) *checker {
	return &checker{k: k, shared: make([]cell, k.shared/k.piece+1), buffers: make([]cell, shadowCells), seen: make(map[place]bool)}
}

// Findings are the findings of the last Run: one for each kind and place in the
// module, at most the first 64. It is nil for a kernel that was compiled without
// Check. The first one is also the Trap of the Run's Result, if nothing else ended
// it; the Run continues, to find more.
func (w *Worker) Findings() []Finding {
	if w.checker == nil {
		return nil
	}
	return w.checker.findings
}

// begin is called before each workgroup.
func (c *checker) begin(w *Worker) {
	c.epoch++
	clear(c.shared)
	for _, z := range c.k.zeros {
		for n := int(z[0]) / c.k.piece; n < (int(z[1])+c.k.piece-1)/c.k.piece; n++ {
			c.shared[n].written = true
		}
	}
}

func (c *checker) find(w *Worker, kind outcome.TrapKind, src *spirv.Inst, f Finding) {
	f.Kind, f.Workgroup = kind, uint32(w.at.group)
	if src != nil {
		f.Off, f.Source = src.Off, c.k.module.Source(src.Line)
	}
	p := place{f.Off, kind}
	if c.seen[p] || len(c.findings) >= maxFindings {
		return
	}
	c.seen[p] = true
	c.findings = append(c.findings, f)
	if len(c.findings) == 1 && w.result.Trap.Kind == outcome.NoTrap {
		w.result.Trap = outcome.Trap{Kind: kind, Binding: f.Binding, Workgroup: f.Workgroup, Lane: f.Lane, Offset: f.Offset}
	}
}

// cells calls f for each piece of memory of an access.
func (c *checker) cells(m *xmem, off uint64, f func(*cell)) {
	piece := uint64(c.k.piece)
	for n := off / piece; n <= (off+m.size-1)/piece; n++ {
		if m.slot == slotShared {
			f(&c.shared[n])
			continue
		}
		key := uint64(m.slot)<<56 | n + 1
		x := &c.buffers[(n*0x9E3779B97F4A7C15>>40^uint64(m.slot)<<11)%shadowCells]
		if x.key != key || x.run != c.run {
			*x = cell{key: key, run: c.run}
		}
		f(x)
	}
}

func (c *checker) skips(m *xmem) bool { return m.slot == slotInline }

// other reports that u used the memory, and that nothing orders it before lane.
// Lanes of another workgroup are never ordered.
func (c *checker) other(w *Worker, u user, lane int) bool {
	switch {
	case u.epoch == 0:
		return false
	case u.group != uint32(w.at.group):
		return !c.k.fences
	}
	if u.epoch != c.epoch {
		return false
	}
	if u.sub != c.sub && (u.more || int(u.lane)/c.k.subs == lane/c.k.subs) {
		return false // a barrier of their subgroup may have been between
	}
	return u.more || int(u.lane) != lane
}

func (c *checker) mark(w *Worker, u *user, lane int) {
	more := u.epoch == c.epoch && u.sub == c.sub && u.group == uint32(w.at.group) && (u.more || int(u.lane) != lane)
	*u = user{c.epoch, uint32(w.at.group), c.sub, uint16(lane), more}
}

func (c *checker) race(w *Worker, m *xmem, off uint64, lane int, does string, u user, did string) {
	who := fmt.Sprintf("lane %d", u.lane)
	if u.group != uint32(w.at.group) {
		who += fmt.Sprintf(" of workgroup %d", u.group)
	}
	c.find(w, outcome.DataRace, m.inst.src, Finding{
		Message: fmt.Sprintf("lane %d of workgroup %d %s %s at offset %d, which %s %s with no barrier between",
			lane, w.at.group, does, c.name(m), off-m.start, who, did),
		Lane: uint32(lane), OtherLane: uint32(u.lane), Binding: m.binding, Offset: off - m.start,
	})
}

func (c *checker) name(m *xmem) string {
	if m.binding != noBinding {
		return fmt.Sprintf("binding %d", m.binding)
	}
	return "shared " + c.k.module.Name(m.v.id)
}

func (c *checker) read(w *Worker, m *xmem, off uint64, lane int) {
	if c.skips(m) {
		return
	}
	c.cells(m, off, func(x *cell) {
		c.initialized(w, m, x, off, lane)
		switch {
		case c.other(w, x.writer, lane):
			c.race(w, m, off, lane, "reads", x.writer, "wrote")
		case c.other(w, x.amid, lane):
			c.race(w, m, off, lane, "reads", x.amid, "changed atomically")
		}
		c.mark(w, &x.reader, lane)
	})
}

// readAll is a read of all active lanes of one place.
func (c *checker) readAll(w *Worker, m *xmem, off uint64) {
	for lane, on := range w.lanes.mask {
		if on != 0 {
			c.read(w, m, off, lane)
		}
	}
}

func (c *checker) initialized(w *Worker, m *xmem, x *cell, off uint64, lane int) {
	if m.slot != slotShared || x.written {
		return
	}
	c.find(w, outcome.Uninitialized, m.inst.src, Finding{
		Message: fmt.Sprintf("lane %d of workgroup %d reads %s at offset %d, which nobody has written", lane, w.at.group, c.name(m), off-m.start),
		Lane:    uint32(lane), Binding: m.binding, Offset: off - m.start,
	})
}

func (c *checker) write(w *Worker, m *xmem, off, value uint64, lane int) {
	if c.skips(m) {
		return
	}
	c.cells(m, off, func(x *cell) {
		part := uint32(value ^ value>>32*0x9E3779B1)
		switch {
		case c.other(w, x.writer, lane) && (x.value != part || x.writer.more && x.writer.group != uint32(w.at.group)):
			c.race(w, m, off, lane, "writes", x.writer, "wrote")
		case c.other(w, x.reader, lane):
			c.race(w, m, off, lane, "writes", x.reader, "read")
		case c.other(w, x.amid, lane):
			c.race(w, m, off, lane, "writes", x.amid, "changed atomically")
		}
		c.mark(w, &x.writer, lane)
		x.written, x.value = true, part
	})
}

func (c *checker) atomic(w *Worker, m *xmem, o spirv.Opcode, off uint64, lane int) {
	c.cells(m, off, func(x *cell) {
		if o != spirv.OpAtomicStore && o != spirv.OpAtomicExchange {
			c.initialized(w, m, x, off, lane)
		}
		switch {
		case c.other(w, x.writer, lane):
			c.race(w, m, off, lane, "changes atomically", x.writer, "wrote")
		case o != spirv.OpAtomicLoad && c.other(w, x.reader, lane):
			c.race(w, m, off, lane, "changes atomically", x.reader, "read")
		}
		if o == spirv.OpAtomicLoad {
			return
		}
		c.mark(w, &x.amid, lane)
		x.written = true
	})
}

// barrier orders accesses before and after it.
func (c *checker) barrier(w *Worker, src *spirv.Inst) {
	c.epoch++
	if w.lanes.pending != 0 || w.lanes.full {
		return
	}
	gone := 0
	for w.lanes.mask[gone] != 0 {
		gone++
	}
	lane := firstActive(w)
	c.find(w, outcome.DivergentBarrier, src, Finding{
		Message: fmt.Sprintf("lane %d of workgroup %d is at a barrier that lane %d, which has returned, did not come to", lane, w.at.group, gone),
		Lane:    uint32(lane), OtherLane: uint32(gone), Binding: noBinding,
	})
}

// trapped makes a finding of a trap.
func (c *checker) trapped(w *Worker, t outcome.Trap, src *spirv.Inst) {
	what := map[outcome.TrapKind]string{
		outcome.OutOfBounds: "uses memory beyond its end", outcome.Misaligned: "uses memory that is not aligned",
		outcome.DivideByZero: "divides by zero", outcome.Unreachable: "reaches what was said to be unreachable",
		outcome.DivergentBarrier: "is at a barrier that other lanes did not come to",
	}[t.Kind]
	msg := fmt.Sprintf("lane %d of workgroup %d %s", t.Lane, t.Workgroup, what)
	if t.Kind == outcome.OutOfBounds || t.Kind == outcome.Misaligned {
		where := "a variable"
		if t.Binding != noBinding {
			where = fmt.Sprintf("binding %d", t.Binding)
		}
		msg += fmt.Sprintf(": offset %d of %s", t.Offset, where)
	}
	c.find(w, t.Kind, src, Finding{Message: msg, Lane: t.Lane, Binding: t.Binding, Offset: t.Offset})
}
