package accel_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel"
)

const (
	streamsOfPrograms = 4 // with the default one
	buffersOfPrograms = 4
	mostOperations    = 60 // an operation is a bit of a word
)

// TestOrder runs random programs of launches, copies, events and waits on four streams. A model that
// does one operation after the other, in the order of the calls, tells what memory holds in the end;
// another, which knows all that comes before an operation as a set, tells which operations are
// refused for what another stream has borrowed.
func TestOrder(t *testing.T) {
	programs := 1000
	if raceEnabled {
		programs = 150
	}
	p := &program{g: open(t, accel.Options{}), t: t}
	p.fill, p.copy = kernel(t, p.g, "fill_u32"), kernel(t, p.g, "copy")
	p.streams = []*accel.Stream[accel.Device]{p.g.Default()}
	for len(p.streams) < streamsOfPrograms {
		p.streams = append(p.streams, stream(t, p.g))
	}
	for range buffersOfPrograms {
		p.buffers = append(p.buffers, alloc[uint32, accel.Unified](t, p.g, 20000))
	}
	var refused, admitted int
	for seed := range uint64(programs) {
		p.run(seed)
		refused, admitted = refused+p.refused, admitted+len(p.ops)
	}
	require.Greater(t, refused, programs, "operations that were refused")
	require.Greater(t, admitted, 10*programs, "operations that ran")
}

type program struct {
	t          *testing.T
	g          *accel.GPU
	fill, copy *accel.Kernel
	streams    []*accel.Stream[accel.Device]
	buffers    []*accel.Buffer[uint32, accel.Unified]
	memory     [buffersOfPrograms]uint32 // the model's

	seed    uint64
	ops     []op
	known   [streamsOfPrograms]uint64 // operations before the next one of the stream
	last    [streamsOfPrograms]int    // operation of the stream; -1: none
	host    uint64                    // operations that were waited for
	refused int
}

// op is an operation that was admitted.
type op struct {
	stream        int
	before        uint64
	reads, writes int // a buffer; -1: none
	event         accel.Event[accel.Device]
}

func (p *program) run(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	p.seed, p.ops, p.refused, p.known, p.host = seed, p.ops[:0], 0, [streamsOfPrograms]uint64{}, 0
	p.last = [streamsOfPrograms]int{-1, -1, -1, -1}
	for range 5 + r.IntN(mostOperations-6) {
		p.step(r)
	}
	for s := range p.streams {
		p.synchronize(s)
	}
	for b := range p.buffers {
		p.look(b)
	}
}

func (p *program) step(r *rand.Rand) {
	s := r.IntN(streamsOfPrograms)
	a, b := r.IntN(buffersOfPrograms), r.IntN(buffersOfPrograms-1)
	if b >= a {
		b++
	}
	switch kind := r.IntN(10); {
	case kind < 3:
		v := r.Uint32()
		if p.operation(s, -1, a, func() (accel.Event[accel.Device], error) {
			return p.streams[s].Launch(fillWith(p.fill, p.buffers[a], v))
		}) {
			p.memory[a] = v
		}
	case kind < 7:
		if p.operation(s, b, a, func() (accel.Event[accel.Device], error) {
			if kind == 6 {
				return accel.Copy(p.streams[s], p.buffers[a], p.buffers[b])
			}
			return p.streams[s].Launch(copyOf(p.copy, p.buffers[b], p.buffers[a]))
		}) {
			p.memory[a] = p.memory[b]
		}
	case kind == 7:
		p.operation(s, -1, -1, p.streams[s].Record)
	case kind == 8 && len(p.ops) > 0:
		e := r.IntN(len(p.ops))
		require.NoError(p.t, p.streams[s].Wait(p.ops[e].event), "program %d", p.seed)
		p.known[s] |= p.closure(e)
	case kind == 9 && r.IntN(2) == 0:
		p.synchronize(s)
		p.look(a)
	case kind == 9 && len(p.ops) > 0:
		e := r.IntN(len(p.ops))
		require.NoError(p.t, p.ops[e].event.Synchronize(p.t.Context()), "program %d", p.seed)
		p.host |= p.closure(e)
		p.look(a)
	}
}

// closure is an operation and all that comes before it.
func (p *program) closure(e int) uint64 { return p.ops[e].before | 1<<e }

// operation enqueues an operation, unless both find that it may not be.
func (p *program) operation(s, reads, writes int, enqueue func() (accel.Event[accel.Device], error)) bool {
	before := p.known[s]
	for other := range p.streams { // legacy synchronisation
		if (s == 0) != (other == 0) && p.last[other] >= 0 {
			before |= p.closure(p.last[other])
		}
	}

	admitted := true
	for i, o := range p.ops {
		conflict := writes >= 0 && (o.reads == writes || o.writes == writes) || reads >= 0 && o.writes == reads
		if conflict && o.stream != s && (before|p.host)&(1<<i) == 0 {
			admitted = false
		}
	}
	event, err := enqueue()
	if !admitted {
		require.ErrorIs(p.t, err, accel.BorrowActive, "program %d, operation %d", p.seed, len(p.ops))
		p.refused++
		return false
	}
	require.NoError(p.t, err, "program %d, operation %d", p.seed, len(p.ops))

	p.last[s] = len(p.ops)
	p.ops = append(p.ops, op{stream: s, before: before, reads: reads, writes: writes, event: event})
	p.known[s] = p.closure(p.last[s])
	return true
}

func (p *program) synchronize(s int) {
	require.NoError(p.t, p.streams[s].Synchronize(p.t.Context()), "program %d", p.seed)
	p.host |= p.known[s]
}

// look compares a buffer with the model, if nothing borrows it.
func (p *program) look(b int) {
	borrowed := false
	for i, o := range p.ops {
		borrowed = borrowed || (o.reads == b || o.writes == b) && p.host&(1<<i) == 0
	}
	values, err := accel.Slice(p.buffers[b])
	if borrowed {
		require.ErrorIs(p.t, err, accel.BorrowActive, "program %d", p.seed)
		return
	}
	require.NoError(p.t, err, "program %d", p.seed)
	for i, v := range values {
		if v != p.memory[b] {
			require.Equal(p.t, p.memory[b], v, "program %d: element %d of buffer %d", p.seed, i, b)
		}
	}
}
