package host

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"

	"capgpu/ddf"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/verify"
)

// The self-test asks a device for known answers before a tenant has it: a driver that loses
// stores, ends loops early, reads outside a binding without a word, or shows what an earlier
// kernel left in shared memory is not used. selftest_test.go has the kernel.

//go:embed selftest.spv
var selfTestModule []byte

const (
	selfTestLanes  = 8
	selfTestFactor = 1664525
	// selfTestRounds is beyond 65,535, where one driver is known to end each loop.
	selfTestRounds = 200_000
	selfTestGroups = 2
	selfTestBytes  = 4 * selfTestLanes * selfTestGroups
)

// SelfTest returns nil if the device gives the answers that are known. It leaves the device as
// it was. Nothing is submitted, and no other goroutine waits.
func SelfTest(dev Device) (err error) {
	t := &selfTest{dev: dev}
	defer func() { err = errors.Join(err, t.end()) }()
	if err := t.begin(); err != nil {
		return err
	}

	if err := t.memory("host memory", t.shared, t.shared); err != nil {
		return err
	}
	if dev.Describe().LocalBytes == 0 {
		return nil
	}
	local, err := dev.Alloc(ddf.PageBytes)
	if err != nil {
		return fmt.Errorf("self-test: local memory: %w", err)
	}
	t.undo = append(t.undo, local.Free)
	return t.memory("local memory", local, t.shared)
}

type selfTest struct {
	dev     Device
	program *instrument.Program
	kernel  Pipeline
	host    []byte // what shared is
	shared  Memory
	undo    []func() error
}

func (t *selfTest) end() (err error) {
	for i := len(t.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, t.undo[i]())
	}
	return err
}

func (t *selfTest) begin() error {
	p, err := verify.Admit(selfTestModule, verify.DefaultLimits())
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	if t.program, err = instrument.Instrument(p); err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	spec := &wire.Pipeline{
		Module: t.program.Module, Entry: p.Info.Entry, Bindings: t.program.Binding, PushBytes: t.program.EntryOff + 4,
		Block: p.Info.Block, SharedBytes: p.Info.SharedBytes,
	}
	if t.kernel, err = t.dev.Compile(spec); err != nil {
		return fmt.Errorf("self-test: compile: %w", err)
	}
	t.undo = append(t.undo, t.kernel.Free)

	m, err := shm.Create("capgpu-selftest", ddf.PageBytes)
	if err != nil {
		return err
	}
	t.undo = append(t.undo, m.Close)
	if t.host, err = m.Map(0, ddf.PageBytes, true); err != nil {
		return err
	}
	t.undo = append(t.undo, func() error { return shm.Unmap(t.host) })
	if t.shared, err = t.dev.Import(t.host); err != nil {
		return fmt.Errorf("self-test: import: %w", err)
	}
	t.undo = append(t.undo, t.shared.Free)
	return nil
}

// memory runs the test on a piece of memory. It is read by way of seen, in the host's.
func (t *selfTest) memory(what string, m, seen Memory) error {
	const rest = 2048                                           // of the page: there the results are seen
	for round, rounds := range [...]uint32{selfTestRounds, 1} { // the second sees what the first left
		groups := uint32(1 + round)
		clear(t.host)
		pattern := uint32(0xA5A50000 + round)
		entries := []Entry{
			t.fill(m, pattern),
			t.launch(m, groups, selfTestBytes, rounds),
			{Entry: &wire.Entry{Op: wire.OpCopy, Spans: []wire.Span{{Memory: 1, Off: rest, Length: selfTestBytes + 4}, {Memory: 2, Length: selfTestBytes + 4}}}, Memory: []Memory{seen, m}},
		}
		res, err := t.run(entries...)
		if err != nil || res.Early || res.Skipped || int(res.Begun) != len(entries) {
			return fmt.Errorf("self-test: %s: a list of %d entries ended with %d, early %v: %w", what, len(entries), res.Begun, res.Early, orNone(err))
		}

		for i := range selfTestLanes * groups {
			if got, want := binary.LittleEndian.Uint32(t.host[rest+4*i:]), known(i%selfTestLanes, rounds); got != want {
				return fmt.Errorf("self-test: %s: lane %d of a loop of %d rounds has %#x, not %#x", what, i, rounds, got, want)
			}
		}
		if got := binary.LittleEndian.Uint32(t.host[rest+selfTestBytes:]); got != pattern {
			return fmt.Errorf("self-test: %s: a word that was filled with %#x has %#x", what, pattern, got)
		}
	}
	return t.outside(what, m)
}

// outside has two lanes write behind a binding, which is to be told, and to end what follows.
func (t *selfTest) outside(what string, m Memory) error {
	const bytes = selfTestBytes - 8
	res, err := t.run(t.launch(m, selfTestGroups, bytes, 1), t.fill(m, 0xBAD))
	if err != nil || !res.Early || res.Begun != 1 {
		return fmt.Errorf("self-test: %s: an access outside a binding was not told: begun %d, early %v: %w", what, res.Begun, res.Early, orNone(err))
	}
	r, err := t.program.Decode(res.Slot[:], program.Dim3{X: selfTestGroups, Y: 1, Z: 1}, []uint64{bytes})
	if err != nil {
		return fmt.Errorf("self-test: %s: %w", what, err)
	}
	trap := r.Trap
	if r.End != instrument.Trapped || trap.Kind != outcome.OutOfBounds || trap.Binding != 0 || trap.Offset < bytes || trap.Offset%4 != 0 {
		return fmt.Errorf("self-test: %s: an access outside a binding was told as %v, %v", what, r.End, trap)
	}

	if res, err = t.run(t.fill(m, 0xBAD)); err != nil || !res.Skipped {
		return fmt.Errorf("self-test: %s: a run behind one that ended early was not skipped: %w", what, orNone(err))
	}
	if err := t.dev.Resume(); err != nil {
		return fmt.Errorf("self-test: resume: %w", err)
	}
	if res, err = t.run(t.launch(m, selfTestGroups, selfTestBytes, 1)); err != nil || res.Early || res.Skipped {
		return fmt.Errorf("self-test: %s: nothing runs after a trap: %w", what, orNone(err))
	}
	return nil
}

var errNone = errors.New("the library reports no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func (t *selfTest) fill(m Memory, pattern uint32) Entry {
	return Entry{Entry: &wire.Entry{Op: wire.OpFill, Spans: []wire.Span{{Memory: 2, Length: selfTestBytes + 4}}, Pattern: pattern}, Memory: []Memory{m}}
}

func (t *selfTest) launch(m Memory, groups uint32, bytes uint64, rounds uint32) Entry {
	return Entry{
		Entry: &wire.Entry{
			Op: wire.OpLaunch, Grid: program.Dim3{X: groups, Y: 1, Z: 1}, Spans: []wire.Span{{Memory: 2, Length: bytes}},
			Access: []program.Access{program.Write}, Push: binary.LittleEndian.AppendUint32(nil, rounds),
		},
		Pipeline: t.kernel, Memory: []Memory{m},
	}
}

// run records a list, runs it once and gives it back.
func (t *selfTest) run(entries ...Entry) (res wire.Result, err error) {
	l, err := t.dev.Record(entries)
	if err != nil {
		return res, fmt.Errorf("record: %w", err)
	}
	if err := t.dev.Submit(l); err != nil {
		return res, errors.Join(fmt.Errorf("submit: %w", err), l.Free())
	}
	if res, err = t.dev.Wait(); err != nil {
		return res, fmt.Errorf("wait: %w", err) // it may be running
	}
	return res, l.Free()
}

// known is what a lane has after so many rounds.
func known(lane, rounds uint32) (sum uint32) {
	for i := range rounds {
		sum = sum*selfTestFactor + i + lane
	}
	return sum
}
