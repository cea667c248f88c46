package lane

import (
	"sync/atomic"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane/vec"
	"capgpu/program/spirv"
)

// Launch is one launch of a program. The bindings belong to a client: they may
// change, and end, while workers run.
type Launch struct {
	Grid     program.Dim3
	Bindings [][]byte
	Inline   []byte
	// Wait, if not nil, is called when the stop flag is not 0, and may take its time. True
	// says to go on.
	Wait func() bool
}

// Result is the result of a worker's share of a launch.
type Result struct {
	Stopped bool
	Trap    outcome.Trap // of the kind NoTrap if there was none
}

// Worker runs workgroups of a kernel, one after the other. It has all the memory
// that they need, and is for one goroutine at a time.
type Worker struct {
	k *Kernel

	// Registers. r has the scalars first, each a slice of one word of s, then the
	// vectors; q and sq are those of 64 bits.
	s  []uint32
	sq []uint64
	r  [][]uint32
	q  [][]uint64

	spare  []uint32 // for unused results, and addresses
	spareL []uint64
	priv   []uint32 // slot by slot, one word per lane
	privL  []uint64

	// Which lanes run, and which wait.
	lanes struct {
		mask    []uint32 // running lanes have all bits set
		full    bool     // all lanes run
		pending int      // number of blocks with waiting lanes
		low     int32    // the first of those blocks
		waiting [][]uint32
		free    [][]uint32
	}

	mem     [slotCount][]byte
	words   [slotCount][]uint32 // the same, if it begins at a multiple of 4
	aligned [slotCount]uint32   // the low bits of its address
	launch  *Launch
	stop    *atomic.Uint32
	result  Result
	checker *checker

	// The current workgroup, and the lanes' places in it.
	at struct {
		group   uint64
		xyz     [3]uint32
		x, y, z []uint32 // LocalInvocationId
	}
}

// setRegs makes the registers: n scalars and vectors of 32 bits, and of 64.
func (w *Worker) setRegs(s, v, sl, vl, lanes int) {
	w.s = make([]uint32, s+v+4)
	w.sq = make([]uint64, sl+vl+2)
	w.r = make([][]uint32, s+v+4)
	w.q = make([][]uint64, sl+vl+2)
	back := make([]uint32, (v+3)*lanes)
	backL := make([]uint64, (vl+1)*lanes)
	for i := range w.r {
		w.r[i] = w.s[i : i+1 : i+1]
		if i >= s && i <= s+v+2 {
			at := (i - s) * lanes
			w.r[i] = back[at : at+lanes : at+lanes]
		}
	}

	for i := range w.q {
		w.q[i] = w.sq[i : i+1 : i+1]
		if i >= sl && i <= sl+vl {
			at := (i - sl) * lanes
			w.q[i] = backL[at : at+lanes : at+lanes]
		}
	}

	w.spare = make([]uint32, lanes)
	w.spareL = make([]uint64, lanes)
}

// MemoryBytes is the memory of one worker.
func (k *Kernel) MemoryBytes() int {
	words := (int(k.count[bankV])+3+k.masks+k.priv[0]+8)*k.lanes + int(k.count[bankS])*7
	longs := (int(k.count[bankVL])+2+k.priv[1])*k.lanes + int(k.count[bankSL])*4
	n := 4*words + 8*longs + k.shared + 32*len(k.blocks) + 24*int(k.count[bankV]+k.count[bankVL]) + 4096
	if k.check {
		n += checkerBytes(k)
	}
	return n
}

// NewWorker makes a worker.
func (k *Kernel) NewWorker() *Worker {
	w := &Worker{k: k}
	w.setRegs(int(k.count[bankS]), int(k.count[bankV]), int(k.count[bankSL]), int(k.count[bankVL]), k.lanes)
	for _, c := range k.consts {
		if c.wide {
			w.sq[c.reg] = c.bits
		} else {
			w.s[c.reg] = uint32(c.bits)
		}
	}

	w.priv = make([]uint32, k.priv[0]*k.lanes)
	w.privL = make([]uint64, k.priv[1]*k.lanes)
	w.lanes.waiting = make([][]uint32, len(k.blocks))
	masks := make([]uint32, k.masks*k.lanes)
	for i := range k.masks {
		w.lanes.free = append(w.lanes.free, masks[i*k.lanes:(i+1)*k.lanes:(i+1)*k.lanes])
	}

	w.lanes.mask = w.takeMask()
	lanes := make([]uint32, 3*k.lanes)
	w.at.x, w.at.y, w.at.z = lanes[:k.lanes], lanes[k.lanes:2*k.lanes], lanes[2*k.lanes:]
	w.setLanes()
	shared := make([]uint64, (k.shared+7)/8)
	w.mem[slotShared] = bytesOf(shared)[:k.shared]
	w.words[slotShared] = wordsOf(w.mem[slotShared])
	w.mem[slotInline] = make([]byte, (k.inline+7)/8*8)
	w.words[slotInline] = wordsOf(w.mem[slotInline])
	if k.check {
		w.checker = newChecker(k)
	}

	return w
}

// setLanes fills the registers of the lanes' own numbers, which never change.
func (w *Worker) setLanes() {
	k := w.k
	in := func(n int) []uint32 {
		if k.inputs[n] < 0 {
			return w.spare
		}
		return w.r[k.inputs[n]]
	}

	for i := range k.lanes {
		x := uint32(i) % k.block.X
		y := uint32(i) / k.block.X % k.block.Y
		z := uint32(i) / k.block.X / k.block.Y
		w.at.x[i], w.at.y[i], w.at.z[i] = x, y, z
		in(inLaneX)[i], in(inLaneY)[i], in(inLaneZ)[i] = x, y, z
		in(inLane)[i] = uint32(i)
		l := uint(i % k.subs)
		in(inSubLane)[i] = uint32(l)
		in(inSubID)[i] = uint32(i / k.subs)
		all := ^uint64(0) >> (64 - k.subs)
		for n, m := range []uint64{1 << l, all &^ (1<<l - 1), all &^ (2<<l - 1), 2<<l - 1, 1<<l - 1} {
			in(inEq + 2*n)[i] = uint32(m)
			in(inEqHi + 2*n)[i] = uint32(m >> 32)
		}
	}
}

func (w *Worker) takeMask() []uint32 {
	m := w.lanes.free[len(w.lanes.free)-1]
	w.lanes.free = w.lanes.free[:len(w.lanes.free)-1]
	return m
}

func (w *Worker) giveMask(m []uint32) { w.lanes.free = append(w.lanes.free, m) }

// Workgroup is the linear number of the current workgroup, or of the last one. It
// is for the trap of a fault of client memory, which panics out of Run.
func (w *Worker) Workgroup() uint32 { return uint32(w.at.group) }

// Run runs workgroups from to to-1 of a launch, in this order, until one traps or
// stop is not 0. It notices stop within a millisecond.
func (w *Worker) Run(l *Launch, from, to uint64, stop *atomic.Uint32) Result {
	w.launch, w.stop, w.result = l, stop, Result{}
	for b := range program.MaxBindings {
		w.mem[b], w.words[b], w.aligned[b] = nil, nil, 0
		if b < len(l.Bindings) {
			w.mem[b] = l.Bindings[b]
			w.aligned[b] = misalignment(w.mem[b])
			if w.aligned[b]&3 == 0 {
				w.words[b] = wordsOf(w.mem[b])
			}
		}
	}

	clear(w.mem[slotInline])
	copy(w.mem[slotInline], l.Inline)
	if w.checker != nil {
		w.checker.run++
		w.checker.findings = nil
		clear(w.checker.seen)
	}

	gx, gy := uint64(l.Grid.X), uint64(l.Grid.Y)
	to = min(to, gx*gy*uint64(l.Grid.Z))
	w.input(inGridX, l.Grid.X)
	w.input(inGridY, l.Grid.Y)
	w.input(inGridZ, l.Grid.Z)
	if from < to {
		w.at.xyz = [3]uint32{uint32(from % gx), uint32(from / gx % gy), uint32(from / gx / gy)}
	}

	if from < to {
		w.at.group = from
		for _, s := range w.k.launch {
			if !s(w) {
				return w.result
			}
		}
	}

	for g := from; g < to; g++ {
		w.at.group = g
		if !checkStop(w) {
			break
		}

		for n, v := range w.at.xyz {
			w.input(inGroupX+n, v)
		}

		w.reset()
		if !w.run() {
			break
		}

		if w.at.xyz[0]++; w.at.xyz[0] == l.Grid.X {
			w.at.xyz[0] = 0
			if w.at.xyz[1]++; w.at.xyz[1] == l.Grid.Y {
				w.at.xyz[1] = 0
				w.at.xyz[2]++
			}
		}
	}

	w.launch = nil
	return w.result
}

func (w *Worker) input(n int, v uint32) {
	if r := w.k.inputs[n]; r >= 0 {
		w.s[r] = v
	}
}

// reset restores the state at the start of a workgroup. A run that was stopped, or
// that panicked, may have left lanes waiting.
func (w *Worker) reset() {
	if w.lanes.pending != 0 {
		for b, m := range w.lanes.waiting {
			if m != nil {
				w.giveMask(m)
				w.lanes.waiting[b] = nil
			}
		}
		w.lanes.pending = 0
	}

	w.lanes.low = 1<<31 - 1
	if w.lanes.mask == nil {
		w.lanes.mask = w.takeMask()
		w.lanes.full = false
	}
	if !w.lanes.full {
		vec.Splat(w.lanes.mask, 1<<32-1)
		w.lanes.full = true
	}

	fill(w.mem[slotShared])
	for _, z := range w.k.zeros {
		clear(w.mem[slotShared][z[0]:z[1]])
	}
	if w.checker != nil {
		w.checker.begin(w)
	}
}

// fill is the content of shared memory before a program writes it.
func fill(mem []byte) {
	if len(mem) == 0 {
		return
	}
	mem[0] = 0xCD
	for n := 1; n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
}

// trap ends the launch.
func (w *Worker) trap(kind outcome.TrapKind, src *spirv.Inst, binding uint16, off uint64, lane int) bool {
	t := outcome.Trap{Kind: kind, Binding: binding, Workgroup: uint32(w.at.group), Lane: uint32(max(0, lane)), Offset: off}
	if w.checker != nil {
		w.checker.trapped(w, t, src)
	}
	w.result.Trap = t
	return false
}

// checkStop is a step.
func checkStop(w *Worker) bool {
	if w.stop != nil && w.stop.Load() != 0 && (w.launch.Wait == nil || !w.launch.Wait()) {
		w.result.Stopped = true
		return false
	}
	return true
}
