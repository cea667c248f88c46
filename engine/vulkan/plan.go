package vulkan

import (
	"encoding/binary"
	"fmt"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
)

// step is one dispatch of a list. A launch is one step, a copy or a fill any number.
type step struct {
	pipe    *pipeline
	grid    program.Dim3
	push    []byte // with the number of the entry
	bind    []bound
	early   bool // it may end early
	barrier bool // it waits for all before it
}

// bound is a binding of a step: part of a piece of memory, or with mem nil a binding without
// bytes. The step touches length bytes at off. The binding may begin before them, where the
// device has one begin.
type bound struct {
	mem         *memory
	off, length uint64
	access      program.Access
	begin, size uint64 // of the binding; size 0: off and length
}

// planner makes steps of entries.
type planner struct {
	d     *Device
	steps []step
	entry uint32 // the number of the entry at hand

	// Since the last barrier.
	early bool
	uses  []bound
}

// plan makes the steps of a list with entries of these numbers, first and following.
func (d *Device) plan(entries []host.Entry, first uint32) ([]step, error) {
	p := &planner{d: d}
	for i := range entries {
		e := &entries[i]
		p.entry = first + uint32(i)
		var err error
		switch e.Op {
		case wire.OpLaunch:
			err = p.launch(e)
		case wire.OpCopy:
			err = p.copy(e)
		case wire.OpFill:
			err = p.fill(e)
		default:
			err = gpuerr.New(gpuerr.Internal, "an entry of kind %d", e.Op)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return p.steps, nil
}

// add adds a step. It waits for those before if one of them may end early, or if one wrote
// memory that it touches, or touched memory that it writes.
func (p *planner) add(s step) {
	s.barrier = p.early || p.conflicts(s.bind)
	if s.barrier {
		p.early, p.uses = false, p.uses[:0]
	}
	p.early = p.early || s.early
	p.uses = append(p.uses, s.bind...)
	p.steps = append(p.steps, s)
}

func (p *planner) conflicts(bind []bound) bool {
	for i := range bind {
		for k := range p.uses {
			a, b := &bind[i], &p.uses[k]
			if (a.access|b.access)&program.Write != 0 && a.overlaps(b) {
				return true
			}
		}
	}
	return false
}

func (b *bound) overlaps(o *bound) bool {
	return b.mem != nil && b.mem == o.mem && b.length > 0 && o.length > 0 && b.off < o.off+o.length && o.off < b.off+b.length
}

func (p *planner) launch(e *host.Entry) error {
	pipe, ok := e.Pipeline.(*pipeline)
	if !ok || pipe.bindings != len(e.Spans) || pipe.bindings != len(e.Access) || pipe.pushBytes != len(e.Push)+4 {
		return gpuerr.New(gpuerr.Internal, "a launch with %d bindings and %d bytes of push constants is not of its program", len(e.Spans), len(e.Push))
	}

	s := step{pipe: pipe, grid: e.Grid, early: true, bind: make([]bound, len(e.Spans))}
	s.push = binary.LittleEndian.AppendUint32(append(make([]byte, 0, len(e.Push)+4), e.Push...), p.entry)
	for i := range e.Spans {
		b, err := boundOf(e, i, e.Access[i])
		if err == nil && (b.off%uint64(p.d.OffsetAlign) != 0 || b.length > p.d.MaxBindingBytes) {
			err = gpuerr.New(gpuerr.Internal, "binding %d: %d bytes at %d; the device has at most %d, at multiples of %d", i, b.length, b.off, p.d.MaxBindingBytes, p.d.OffsetAlign)
		}
		if err != nil {
			return err
		}
		s.bind[i] = b
	}
	p.add(s)
	return nil
}

// boundOf is span i of an entry. The frame has checked it; the device would not.
func boundOf(e *host.Entry, i int, access program.Access) (bound, error) {
	if i >= len(e.Spans) || i >= len(e.Memory) {
		return bound{}, gpuerr.New(gpuerr.Internal, "an entry has no span %d", i)
	}
	span := e.Spans[i]
	if span.Length == 0 {
		return bound{}, nil
	}
	m, ok := e.Memory[i].(*memory)
	if !ok || span.Length > m.bytes || span.Off > m.bytes-span.Length {
		return bound{}, gpuerr.New(gpuerr.Internal, "span %d: %d bytes at %d are not in its memory", i, span.Length, span.Off)
	}
	return bound{mem: m, off: span.Off, length: span.Length, access: access}, nil
}

// Sizes of the kernels for bytes.
const (
	maxPiece   = 1 << 30 // of one step: offsets in it stay below 2³¹
	laneBytes  = 16      // at least so many for a lane, while there are workgroups left
	groupLanes = 256
	maxGroups  = 1<<16 - 1
	spareBytes = 1 << 20
)

func groups(n uint64) program.Dim3 {
	per := uint64(laneBytes * groupLanes)
	return program.Dim3{X: uint32(min(max((n+per-1)/per, 1), maxGroups)), Y: 1, Z: 1}
}

// piece is the most bytes of a step.
func (p *planner) piece() uint64 {
	return min(maxPiece, (p.d.MaxBindingBytes-2*uint64(p.d.OffsetAlign))/4*4)
}

// from has a binding begin where the device has one begin, and end at a whole word. It
// returns the offset in it.
func (p *planner) from(b *bound) uint32 {
	align := uint64(p.d.OffsetAlign)
	b.begin = b.off / align * align
	b.size = (b.off+b.length+3)/4*4 - b.begin
	return uint32(b.off - b.begin)
}

func (p *planner) fill(e *host.Entry) error {
	to, err := boundOf(e, 0, program.Write)
	if err == nil && (to.off|to.length)%4 != 0 {
		err = gpuerr.New(gpuerr.Internal, "a fill of %d bytes at %d; both are multiples of 4", to.length, to.off)
	}
	if err != nil {
		return err
	}
	for rest := to; rest.length > 0; {
		part := rest
		part.length = min(rest.length, p.piece())
		rest.off, rest.length = rest.off+part.length, rest.length-part.length
		at := p.from(&part)
		p.add(step{
			pipe: p.d.filler, grid: groups(part.length), bind: []bound{part},
			push: words(at/4, uint32(part.length/4), e.Pattern, p.entry),
		})
	}
	return nil
}

func (p *planner) copy(e *host.Entry) error {
	to, err := boundOf(e, 0, program.Write)
	if err != nil {
		return err
	}
	from, err := boundOf(e, 1, program.Read)
	if err != nil {
		return err
	}
	if to.length != from.length {
		return gpuerr.New(gpuerr.Internal, "a copy of %d bytes to %d", from.length, to.length)
	}
	switch {
	case !to.overlaps(&from):
		p.copyParts(to, from)
		return nil
	case to.off == from.off:
		return nil
	default:
		return p.copyOverlap(to, from)
	}
}

// copyParts copies memory to other memory.
func (p *planner) copyParts(to, from bound) {
	for to.length > 0 {
		n := min(to.length, p.piece())
		a, b := to, from
		a.length, b.length = n, n
		to.off, to.length = to.off+n, to.length-n
		from.off, from.length = from.off+n, from.length-n

		toOff, fromOff := p.from(&a), p.from(&b)
		p.add(step{
			pipe: p.d.copier, grid: groups(n), bind: []bound{a, b},
			push: words(toOff, fromOff, uint32(n), p.entry),
		})
	}
}

// copyOverlap copies by way of spare memory, from the end where it goes up.
func (p *planner) copyOverlap(to, from bound) error {
	spare, err := p.d.spareMemory()
	if err != nil {
		return err
	}
	for done, n := uint64(0), uint64(0); done < to.length; done += n {
		n = min(to.length-done, spareBytes)
		at := done
		if to.off > from.off {
			at = to.length - done - n
		}
		a, b := to, from
		a.off, a.length = to.off+at, n
		b.off, b.length = from.off+at, n
		p.copyParts(bound{mem: spare, length: n, access: program.Write}, b)
		p.copyParts(a, bound{mem: spare, length: n, access: program.Read})
	}
	return nil
}

// spareMemory is memory by way of which overlapping copies go.
func (d *Device) spareMemory() (*memory, error) {
	if d.spare == nil {
		b, err := d.keptBlock(spareBytes, ownMemory)
		if err != nil {
			return nil, d.failed("allocate memory for a copy that overlaps", spareBytes, err)
		}
		d.spare = &memory{d: d, block: b}
	}
	return d.spare, nil
}

func words(v ...uint32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
