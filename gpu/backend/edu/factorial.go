package edu

import (
	"crypto/sha256"
	"encoding/binary"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/names"
)

// edu.factorial: results[i] = operands[i]! mod 2^32, of little-endian u32, computed by
// the device's unit, one element after the other in the order of i.
//
//	binding 0  operands  read
//	binding 1  results   write
//
// A launch has grid·block lanes (the product of all six numbers). Lane i, counted
// through the grid, does element i where both bindings have one; lanes beyond that do
// nothing, and elements beyond the lanes stay as they are. A binding that does not
// begin at a multiple of 4 is a trap (misaligned). Each operand is read once, so the
// bindings may be one and the same. The unit takes time in proportion to the operand:
// the first one above MaxOperand ends the launch as failed, launchLimit; the results
// before it are there. (From 34 on all results are 0.)
const factorialName = names.EduFactorial

// MaxOperand is the largest operand that the unit is given: a few milliseconds.
const MaxOperand = 1 << 20

const (
	maxBlock = program.MaxBlockThreads
	maxGrid  = program.MaxGrid
)

// factorial is the one program. It has no bundle; its digest is that of its name.
type factorial struct{ info backend.ProgramInfo }

var theFactorial = &factorial{backend.ProgramInfo{
	Name:   factorialName,
	Digest: sha256.Sum256([]byte("capgpu built-in program " + factorialName + " 1")),
	Entry:  "main",
	Bindings: []backend.BindingInfo{
		{Name: "operands", Access: backend.Read, Type: "u32"},
		{Name: "results", Access: backend.Write, Type: "u32"},
	},
	Block:     backend.Dim3{X: 64, Y: 1, Z: 1},
	BlockFree: true,
}}

// Info implements backend.Program.
func (f *factorial) Info() *backend.ProgramInfo { return &f.info }

// Programs implements backend.Backend.
func (d *Device) Programs() []string { return []string{factorialName} }

// Builtin implements backend.Backend.
func (d *Device) Builtin(name string) (backend.Program, error) {
	if name != factorialName {
		return nil, gpuerr.New(gpuerr.NoProgram, "the edu device has no program %.64q, only %s", name, factorialName)
	}
	return theFactorial, nil
}

// launch runs edu.factorial.
func (d *Device) launch(t *task) outcome.Outcome {
	job := t.job
	if job.Check { // there is nothing that could watch the device
		return deviceError
	}
	operands, results := job.Spans[0], job.Spans[1]
	for i, s := range job.Spans {
		if s.IOVA%4 != 0 {
			return trapped(outcome.Trap{Kind: outcome.Misaligned, Binding: uint16(i)})
		}
	}
	lanes := job.Grid.Count() * job.Block.Count() // at most 2^48 · 2^10
	count := min(lanes, uint64(len(operands.Host)/4), uint64(len(results.Host)/4))
	if count > 0 && !d.write(regStatus, statusInterrupt) {
		return vanished
	}
	block := job.Block.Count()
	for i := range count {
		if t.stop.Load() != stopNone {
			return cancelled
		}
		var word [4]byte
		if trap, ok := load(word[:], operands, 4*i, 0); !ok {
			return trapped(at(trap, i, block))
		}
		operand := binary.LittleEndian.Uint32(word[:])
		if operand > MaxOperand {
			return tooMuch
		}
		result, ok := d.compute(operand)
		if !ok {
			return vanished
		}
		trap, ok := access(results, 4*i, 4, 1, func(b []byte) { binary.LittleEndian.PutUint32(b, result) })
		if !ok {
			return trapped(at(trap, i, block))
		}
	}
	return outcome.Success
}

// at is the trap of a lane.
func at(t outcome.Trap, lane, block uint64) outcome.Trap {
	t.Workgroup, t.Lane = uint32(lane/block), uint32(lane%block)
	return t
}

// compute has the unit do one factorial. It is false when the device is gone.
func (d *Device) compute(operand uint32) (result uint32, ok bool) {
	if !d.write(regFactorial, operand) || !d.await(regStatus, statusComputing, factorialPatience) {
		return 0, false
	}
	return d.read(regFactorial)
}
