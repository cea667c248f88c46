package oracle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"capgpu/bench/vulkan"
	"capgpu/program/instrument"
)

// Instrumented is lavapipe with programs rewritten for devices that trap nothing.
type Instrumented struct{ *Lavapipe }

// Name is that of the driver, with its version.
func (e *Instrumented) Name() string { return e.Lavapipe.Name() + ", instrumented" }

// Run implements Engine. A trap is an error.
func (e *Instrumented) Run(l *Launch) ([][]byte, error) {
	out, r, err := e.Report(l, instrument.NoEntry, 0)
	if err == nil && r.End != instrument.Whole {
		err = fmt.Errorf("the launch ended %v: %v", r.End, r.Trap)
	}
	return out, err
}

// Report runs a launch as the second entry of a list, and returns what its slot
// says: the bindings, the trap buffer behind them, the entry's number behind the push
// constants. first is the entry that has ended early, rounds the bound of rounds.
func (e *Instrumented) Report(l *Launch, first, rounds uint32) ([][]byte, instrument.Report, error) {
	p, err := Admit(l)
	if err != nil {
		return nil, instrument.Report{}, err
	}
	i, err := instrument.Instrument(p)
	if err != nil {
		return nil, instrument.Report{}, err
	}

	const entry = 1
	trap := make([]byte, instrument.BufferBytes(entry+1))
	instrument.ArmHead(trap)
	binary.LittleEndian.PutUint32(trap[instrument.FirstOff:], first)
	constants, err := l.constants()
	if err != nil {
		return nil, instrument.Report{}, err
	}

	job := vulkan.Job{SPIRV: i.Module, Grid: [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}, Constants: constants}
	lengths := make([]uint64, i.Binding)
	job.Bindings = make([][]byte, i.Binding+1)
	for k, b := range l.Bindings {
		if b == nil || k >= len(lengths) {
			continue
		}
		lengths[k] = uint64(len(b))
		if job.Bindings[k] = bytes.Clone(b); len(b) == 0 {
			job.Bindings[k] = make([]byte, 4) // a device has no binding without bytes
		}
	}

	if err := instrument.ArmSlot(trap[instrument.SlotOff(entry):], lengths, rounds); err != nil {
		return nil, instrument.Report{}, err
	}
	job.Bindings[i.Binding] = trap
	job.Inline = make([]byte, i.EntryOff+4)
	copy(job.Inline, l.Inline)
	binary.LittleEndian.PutUint32(job.Inline[i.EntryOff:], entry)

	out, err := e.Process.Run(&job)
	if err != nil {
		return nil, instrument.Report{}, err
	}
	r, err := i.Decode(out[i.Binding][instrument.SlotOff(entry):], l.Grid, lengths)
	all := make([][]byte, len(l.Bindings))
	for k, b := range l.Bindings {
		if all[k] = b; b != nil && k < len(lengths) { // an optimiser may have left it out
			all[k] = out[k][:len(b)]
		}
	}
	return all, r, err
}

// constants are the specialisation constants of a launch.
func (l *Launch) constants() (all []vulkan.Constant, err error) {
	if l.BlockFree {
		if all, err = blockConstants(l); err != nil {
			return nil, err
		}
	}

	if l.Manifest != nil {
		for _, c := range l.Manifest.Constants {
			if slices.ContainsFunc(all, func(o vulkan.Constant) bool { return o.ID == c.ID }) {
				continue // of the workgroup's size: only the default
			}
			all = append(all, vulkan.Constant{ID: c.ID, Value: c.Value, Bytes: 4})
		}
	}

	return all, nil
}
