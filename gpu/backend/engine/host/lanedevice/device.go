// Package lanedevice is a host.Device without a GPU: it runs instrumented programs on the lane
// engine, on the host's processor. With it all that is said of engines is tested where there is
// no vendor's library.
//
// It is as slow as the lane engine, and behaves as a device with robustBufferAccess does, but in
// two things: an access at a constant offset beyond a binding, and a barrier that not all lanes
// reach, are the loss of the device.
//
//	Submit ──► queue (wire.MaxAhead) ──runRuns──► results ──► Wait
//
// Device.mu guards what Stop reaches; no lock is held while a kernel runs.
package lanedevice

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

// Options of a Device.
type Options struct {
	LocalBytes  uint64 // memory of its own; 0: it works on the host's
	Subgroup    int    // lanes of a subgroup: 8, 16, 32 or 64; 0: 32
	OffsetAlign uint32 // of bindings; 0: 16
	Fault       Fault  // "": it is healthy
	FaultAt     int    // the run, or the compilation, that has the fault, from 1
}

// Fault is how a device misbehaves, for tests.
type Fault string

const (
	Healthy Fault = ""
	Crash   Fault = "crash"  // the process ends in a run
	Hang    Fault = "hang"   // a run does not end, whatever it is told
	Silent  Fault = "silent" // runs are done, and nothing is told of them
	BadSlot Fault = "slot"   // a run is told to have ended early, with words that no program writes
	Stuck   Fault = "stuck"  // a program is compiled for ever
)

// Faults lists all of them.
var Faults = []Fault{Healthy, Crash, Hang, Silent, BadSlot, Stuck}

// features are all that the lane engine has.
var features = []program.Feature{
	program.FeatureSubgroupVote, program.FeatureSubgroupBallot, program.FeatureSubgroupShuffle, program.FeatureSubgroupArith,
	program.FeatureSubgroupCluster, program.FeatureSubgroupQuad, program.FeatureF16Storage, program.FeatureI8Storage, program.FeatureF64,
	program.FeatureI64, program.FeatureI64Atomics, program.FeatureF32Atomics, program.FeatureF16, program.FeatureI8, program.FeatureI16,
}

// Device is one.
type Device struct {
	o        Options
	describe wire.Device

	queue   chan *submitted
	results chan result
	done    chan struct{}
	wg      sync.WaitGroup
	runs    int // that runRuns has begun

	compiles int

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	localUsed uint64
	// +checklocks:mu
	last uint64 // run that was submitted
	// +checklocks:mu
	stopped uint64 // the last run that is to end soon
	// +checklocks:mu
	running *list
	// +checklocks:mu
	skipping bool
}

type submitted struct {
	list *list
	n    uint64
}

type result struct {
	res wire.Result
	err error
}

// New makes a device. Close it.
func New(o Options) *Device {
	if o.OffsetAlign == 0 {
		o.OffsetAlign = 16
	}
	if o.Subgroup == 0 {
		o.Subgroup = 32
	}

	d := &Device{o: o, queue: make(chan *submitted, wire.MaxAhead), results: make(chan result, wire.MaxAhead), done: make(chan struct{})}
	d.describe = wire.Device{
		Name: "lane engine", Driver: "capgpu", LocalBytes: o.LocalBytes,
		MaxThreadsPerBlock: program.MaxBlockThreads,
		MaxBlock:           program.Dim3{X: program.MaxBlockThreads, Y: program.MaxBlockThreads, Z: program.MaxBlockThreads},
		MaxGrid:            program.Dim3{X: program.MaxGrid, Y: program.MaxGrid, Z: program.MaxGrid},
		MaxSharedBytes:     program.MaxSharedBytes, MaxBindings: program.MaxBindings, MaxPushBytes: wire.MaxPush,
		SubgroupSize: uint32(o.Subgroup), OffsetAlign: o.OffsetAlign, MaxBindingBytes: 1<<32 - 4096, ComputeUnits: 1,
		Features: slices.Clone(features),
	}
	d.wg.Go(d.runRuns)
	return d
}

// Describe implements host.Device.
func (d *Device) Describe() wire.Device { return d.describe }

// memory is memory of the host, which is what the device's own is, too.
type memory struct {
	dev   *Device
	bytes []byte
	local bool
}

// Import implements host.Device.
func (d *Device) Import(mem []byte) (host.Memory, error) { return &memory{dev: d, bytes: mem}, nil }

// Alloc implements host.Device.
func (d *Device) Alloc(bytes uint64) (host.Memory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if available := d.o.LocalBytes - d.localUsed; bytes > available {
		return nil, gpuerr.Refused("deviceMemory", bytes, available)
	}
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "make local memory of %d bytes: %v", bytes, err)
	}
	d.localUsed += bytes
	return &memory{dev: d, bytes: b, local: true}, nil
}

// Free implements host.Memory.
func (m *memory) Free() error {
	if !m.local {
		return nil
	}
	m.dev.mu.Lock()
	defer m.dev.mu.Unlock()
	m.dev.localUsed -= uint64(len(m.bytes))
	return unix.Munmap(m.bytes)
}

// pipeline is a compiled program.
type pipeline struct {
	worker *lane.Worker
	spec   wire.Pipeline
}

// Free implements host.Pipeline.
func (*pipeline) Free() error { return nil }

// Compile implements host.Device.
func (d *Device) Compile(p *wire.Pipeline) (host.Pipeline, error) {
	if d.compiles++; d.o.Fault == Stuck && d.compiles == d.o.FaultAt {
		<-d.done
	}

	// The workgroup and the length of the dynamic array are constants like others.
	bundle, err := program.Encode(p.Module, &program.Manifest{Name: "instrumented", Entry: p.Entry, Constants: p.Constants})
	if err != nil {
		return nil, err
	}
	v, err := verify.Admit(bundle, limits())
	if err != nil {
		return nil, err
	}
	k, err := lane.Compile(v, lane.Options{SubgroupSize: d.o.Subgroup, Block: p.Block})
	if err != nil {
		return nil, err
	}
	return &pipeline{worker: k.NewWorker(), spec: *p}, nil
}

// limits are those of the profile, with room for what package instrument adds.
func limits() verify.Limits {
	l := verify.DefaultLimits()
	l.InlineBytes = wire.MaxPush
	l.StackBytes *= 2
	l.RegisterBytes *= 8
	l.Instructions *= 8
	l.Nesting *= 2
	return l
}

// list is a recorded list with its trap buffer. That is memory as a device's is: the host
// writes the stop word while a kernel reads it.
type list struct {
	entries []host.Entry
	lengths [][]uint64
	trap    []byte
}

// Record implements host.Device.
func (d *Device) Record(entries []host.Entry) (host.List, error) {
	trap, err := unix.Mmap(-1, 0, instrument.BufferBytes(len(entries)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "make a trap buffer: %v", err)
	}
	l := &list{entries: entries, trap: trap, lengths: make([][]uint64, len(entries))}
	for i := range entries {
		for _, s := range entries[i].Spans {
			l.lengths[i] = append(l.lengths[i], s.Length)
		}
	}
	return l, nil
}

// Free implements host.List.
func (l *list) Free() error { return unix.Munmap(l.trap) }

// Submit implements host.Device.
func (d *Device) Submit(l host.List) error {
	d.mu.Lock()
	d.last++
	s := &submitted{l.(*list), d.last}
	d.mu.Unlock()
	select {
	case d.queue <- s:
		return nil
	default:
		return gpuerr.New(gpuerr.Internal, "more than %d runs", wire.MaxAhead)
	}
}

// Resume implements host.Device.
func (d *Device) Resume() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.skipping = false
	return nil
}

// Wait implements host.Device.
func (d *Device) Wait() (wire.Result, error) {
	select {
	case r := <-d.results:
		return r.res, r.err
	case <-d.done:
		return wire.Result{}, host.ErrClosed
	}
}

// Stop implements host.Device.
func (d *Device) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = d.last
	if d.running != nil {
		binary.LittleEndian.PutUint32(d.running.trap[instrument.StopOff:], 1)
	}
}

// Close implements host.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if !closed {
		close(d.done)
	}
	d.wg.Wait()
	return nil
}

var errNative = fmt.Errorf("%w: a kernel did what an instrumented one cannot", host.ErrLost)
