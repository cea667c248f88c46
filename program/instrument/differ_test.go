package instrument_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/lane/lanetest"
	"capgpu/program/verify"
)

// pad is memory behind each binding of the instrumented launch: there is such
// memory on a device, too, and an instrumented program never writes it. The lengths
// in the slot do not count it.
const pad = 8 << 10

const (
	entries = 3
	entry   = 1
	// modelSteps bounds the model.
	modelSteps = 3 << 16
)

// verdict is what a comparison saw.
type verdict struct {
	after   [][]byte // the bindings, instrumented
	trapped bool     // the plain launch did
	same    bool     // the record is the very trap of the engine; else one that the model has
	dirty   bool     // the program reads shared memory that nobody wrote, so nothing was compared
	later   bool     // likewise, but of a lane behind the first of those that trap together
	stuck   bool     // after the trap, lanes met at different barriers
	long    bool     // a loop did not end
}

// launched is a launch of an instrumented program.
type launched struct {
	bindings [][]byte
	trap     []byte // the trap buffer
	result   lane.Result
	report   instrument.Report
}

// errEngine means that the lane engine cannot hold the instrumented program.
var errEngine = errors.New("the engine cannot hold it")

// run launches an instrumented program as one entry of a list.
func run(p *verify.Program, i *instrument.Program, ip *verify.Program, o lane.Options, l *lane.Launch, first uint32, most uint32) (*launched, error) {
	k, err := lane.Compile(ip, o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEngine, err)
	}

	x := &launched{trap: make([]byte, instrument.BufferBytes(entries))}
	var lengths []uint64
	n := len(p.Info.Bindings)
	for b := range n {
		var data []byte
		if b < len(l.Bindings) {
			data = l.Bindings[b]
		}
		lengths = append(lengths, uint64(len(data)))
		more := make([]byte, len(data)+pad)
		for k := len(data); k < len(more); k++ {
			more[k] = 0xA5
		}
		copy(more, data)
		x.bindings = append(x.bindings, more)
	}

	instrument.ArmHead(x.trap)
	binary.LittleEndian.PutUint32(x.trap[instrument.FirstOff:], first)
	for e := range entries {
		if err := instrument.ArmSlot(x.trap[instrument.SlotOff(e):], lengths, most); err != nil {
			return nil, err
		}
	}

	inline := make([]byte, i.EntryOff+4)
	copy(inline, l.Inline)
	binary.LittleEndian.PutUint32(inline[i.EntryOff:], entry)
	before := bytes.Clone(x.trap)
	list := append(slices.Clip(x.bindings), make([][]byte, int(i.Binding)-n+1)...)
	list[i.Binding] = x.trap
	groups := uint64(l.Grid.X) * uint64(l.Grid.Y) * uint64(l.Grid.Z)
	x.result = k.NewWorker().Run(&lane.Launch{Grid: l.Grid, Bindings: list, Inline: inline}, 0, groups, nil)

	for e := range entries {
		if at := instrument.SlotOff(e); e != entry && !bytes.Equal(x.trap[at:at+instrument.SlotBytes], before[at:at+instrument.SlotBytes]) {
			return nil, fmt.Errorf("the slot of entry %d was written", e)
		}
	}

	if x.report, err = i.Decode(x.trap[instrument.SlotOff(entry):], l.Grid, lengths); err != nil {
		return nil, err
	}
	at, early := instrument.First(x.trap)
	if x.result.Trap.Kind == outcome.NoTrap && x.report.End != instrument.Whole && (!early || at > entry) {
		return nil, fmt.Errorf("entry %d recorded %v, and the head says %d", entry, x.report, at)
	}
	return x, nil
}

// difference runs a launch as it is and instrumented, both on the lane engine. It
// returns how they differ: in the bindings, bit for bit except that all NaNs are
// equal, or in the trap. If several lanes trap, the engine tells the first in its
// order, and the record is of the lane that came first to a barrier or its end: it
// must be one of those in which the launch may end by the model.
//
// The engine has 0xCD in shared memory that nobody wrote, an instrumented program 0.
// Where that may be the difference, what has to be equal is the program without
// those zeros. Loops with more rounds than most are taken for endless.
func difference(t testing.TB, p *verify.Program, o lane.Options, l *lane.Launch, most uint32) (verdict, error) {
	i, err := instrument.Instrument(p)
	if err != nil {
		return verdict{}, fmt.Errorf("Instrument: %w", err)
	}
	v, err := differs(t, p, i, o, l, most)
	if err == nil || len(p.Shared) == 0 || errors.Is(err, errEngine) {
		return v, err
	}

	if i, err = instrument.Uncleared(p); err != nil {
		return v, fmt.Errorf("Instrument: %w", err)
	}
	if v, err = differs(t, p, i, o, l, most); err == nil {
		v.dirty = true
	}
	return v, err
}

func differs(t testing.TB, p *verify.Program, i *instrument.Program, o lane.Options, l *lane.Launch, most uint32) (v verdict, err error) {
	k, err := lane.Compile(p, o)
	if err != nil {
		return v, fmt.Errorf("Compile: %w", err)
	}
	got, err := run(p, i, again(t, p, i), o, l, instrument.NoEntry, most)
	if err != nil {
		return v, err
	}

	plain := fresh(l)
	if got.report.End == instrument.TooLong {
		return verdict{long: true}, nil
	}

	groups := uint64(l.Grid.X) * uint64(l.Grid.Y) * uint64(l.Grid.Z)
	// Nothing ends the plain program's loops but this.
	var stop atomic.Uint32
	stop.Store(1)
	looks := 64 * int(most)
	plain.Wait = func() bool { looks--; return looks > 0 }
	r := k.NewWorker().Run(plain, 0, groups, &stop)
	if r.Stopped {
		return verdict{long: true}, nil
	}
	v.trapped = r.Trap.Kind != outcome.NoTrap
	for b := range got.bindings {
		v.after = append(v.after, got.bindings[b][:len(got.bindings[b])-pad])
	}
	return v, compare(p, o, l, r, got, plain.Bindings, &v)
}

// fresh is a launch on copies of the bindings, as they are aligned.
func fresh(l *lane.Launch) *lane.Launch {
	c := *l
	c.Bindings = nil
	for _, b := range l.Bindings {
		c.Bindings = append(c.Bindings, append(make([]byte, 0, (len(b)+15)/8*8), b...))
	}
	return &c
}

func compare(p *verify.Program, o lane.Options, l *lane.Launch, r lane.Result, got *launched, want [][]byte, v *verdict) error {
	trap := got.report.Trap
	for b := range got.bindings {
		n := 0
		if b < len(l.Bindings) {
			n = len(l.Bindings[b])
		}
		if len(bytes.TrimLeft(got.bindings[b][n:], "\xA5")) > 0 {
			return fmt.Errorf("binding %d: memory behind its %d bytes was written", b, n)
		}
	}

	switch {
	case r.Trap.Kind == outcome.DivergentBarrier && r.Trap == got.result.Trap:
		v.same = true // nothing records it, and the program has it still
		return nil
	case got.result.Trap.Kind == outcome.DivergentBarrier && v.trapped:
		// A lane that trapped went on another way than the others. On the engine
		// that ends the launch, before the lane has written its words.
		v.stuck = true
		return nil
	case got.result.Trap.Kind != outcome.NoTrap:
		return fmt.Errorf("the instrumented program traps with {%v}, the plain one with {%v}", got.result.Trap, r.Trap)
	}

	if trap.Kind == r.Trap.Kind && trap == r.Trap {
		v.same = true
		if v.trapped {
			return nil
		}
		return same(p, got.bindings, want)
	}
	if !v.trapped {
		return fmt.Errorf("%v was recorded, and nothing traps", got.report)
	}

	traps, err := lanetest.Traps(p, o, fresh(l), modelSteps)
	if errors.Is(err, lanetest.ErrTooLong) {
		v.long = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("the model: %w", err)
	}

	for _, m := range traps {
		if m.Binding == outcome.NoBinding && m.Offset == 0 {
			m.Offset = trap.Offset // a lane's own variables have no layout in the model
		}
		if m == trap {
			return nil
		}
		// The model has the first of the lanes that trap together. One that returns
		// sooner than that may be recorded.
		if m.Kind == trap.Kind && m.Binding == trap.Binding && m.Workgroup == trap.Workgroup && m.Lane < trap.Lane {
			v.later = true
			return nil
		}
	}

	return fmt.Errorf("{%v} was recorded; the engine traps with {%v}, the model with one of %v", trap, r.Trap, traps)
}

// same compares bindings.
func same(p *verify.Program, got, want [][]byte) error {
	for b := range got {
		var w []byte
		if b < len(want) {
			w = want[b]
		}
		if err := sameElements(p.Info.Bindings[b].Type, got[b][:len(w)], w); err != nil {
			return fmt.Errorf("binding %d: %w", b, err)
		}
	}
	return nil
}

func sameElements(t program.Type, got, want []byte) error {
	size := max(int(t.Bytes()), 1)
	if size == 1 {
		size = 4
	}
	for at := 0; at < len(want); at += size {
		g, w := got[at:min(at+size, len(got))], want[at:min(at+size, len(want))]
		if bytes.Equal(g, w) || isNaN(t, g) && isNaN(t, w) {
			continue
		}
		return fmt.Errorf("byte %d is %x, plain %x", at, g, w)
	}
	return nil
}

func isNaN(t program.Type, b []byte) bool {
	switch {
	case t == "f16" && len(b) == 2:
		return binary.LittleEndian.Uint16(b)&0x7FFF > 0x7C00
	case t == "f32" && len(b) == 4:
		return math.IsNaN(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case t == "f64" && len(b) == 8:
		return math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return false
}
