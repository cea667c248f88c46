package mock

import (
	"encoding/binary"
	"math"

	"capgpu/gpu/backend"
	"capgpu/outcome"
	"capgpu/program"
)

// builtin is a program of the device. All of them are elementwise over u32 or
// f32 words; the element count is the least over the bindings, and element i is
// computed by lane i modulo the count of lanes.
//
//	copy        src → dst                       word by word, overlap as if through a temporary
//	fill_u32    dst                             inline u32 pattern
//	vecadd_f32  c = a + b
//	saxpy_f32   y = a·x + y                     inline f32 a; the product is rounded
//	matvec_f32  y = M·x, M row-major            inline u32 rows, u32 cols; see matvec
//	spin                                        never ends by itself
//	trap        reads elements 0…n of n         outOfBounds at the one too many
type builtin struct {
	info    backend.ProgramInfo
	prepare func(t *task, job *backend.Job) outcome.Trap
}

// naturalBlock is the block size of every natural grid.
const naturalBlock = 256

var builtins = makeBuiltins()

func makeBuiltins() map[string]*builtin {
	read := func(name string) backend.BindingInfo { return backend.BindingInfo{Name: name, Access: backend.Read} }
	write := func(name string) backend.BindingInfo {
		return backend.BindingInfo{Name: name, Access: backend.Write}
	}
	both := func(name string) backend.BindingInfo {
		return backend.BindingInfo{Name: name, Access: backend.ReadWrite}
	}
	all := map[string]*builtin{}
	add := func(name string, inlineBytes uint32, cover string, prepare func(*task, *backend.Job) outcome.Trap, bindings ...backend.BindingInfo) {
		all[name] = &builtin{
			info:    backend.ProgramInfo{Name: name, Digest: digestOf(name), Bindings: bindings, InlineBytes: inlineBytes, Block: program.Dim3{X: naturalBlock, Y: 1, Z: 1}, BlockFree: true, Grid: program.Grid{Cover: cover}},
			prepare: prepare,
		}
	}
	add("copy", 0, "", prepareCopyProgram, read("src"), write("dst"))
	add("fill_u32", 4, "", prepareFillProgram, write("dst"))
	add("vecadd_f32", 0, "", prepareVecadd, read("a"), read("b"), write("c"))
	add("saxpy_f32", 4, "", prepareSaxpy, read("x"), both("y"))
	add("matvec_f32", 8, "y", prepareMatvec, read("m"), read("x"), write("y"))
	add("spin", 0, "", nil)
	add("trap", 0, "", prepareTrap, read("a"))
	return all
}

// Info implements backend.Program.
func (b *builtin) Info() *backend.ProgramInfo { return &b.info }

// prepare sets the task up for a job. A trap that follows from the job's shape
// alone is found here, before anything is written.
func (t *task) prepare(job *backend.Job) outcome.Trap {
	t.block = 1
	switch job.Op {
	case backend.OpCopy:
		prepareMove(t, job.Spans[0].Host, job.Spans[1].Host)
		return outcome.Trap{}
	case backend.OpFill:
		if trap := t.checkAligned(job); trap.Kind != outcome.NoTrap {
			return trap
		}
		prepareFill(t, job, job.Pattern)
		return outcome.Trap{}
	default: // OpLaunch
		t.lanes = geometryOf(job)
		if trap := t.checkAligned(job); trap.Kind != outcome.NoTrap {
			return trap
		}
		return job.Program.(*builtin).prepare(t, job)
	}
}

// checkAligned traps spans that do not start or end at a whole word.
func (t *task) checkAligned(job *backend.Job) outcome.Trap {
	for i, span := range job.Spans {
		if !aligned(span.Host) || span.IOVA%4 != 0 {
			return t.trapAt(outcome.Misaligned, i, 0, 0)
		}
		if words := uint64(len(span.Host)) / 4; len(span.Host)%4 != 0 {
			return t.trapAt(outcome.Misaligned, i, words*4, words)
		}
	}
	return outcome.Trap{}
}

// trapAt is a trap of the lane that computes an item.
func (t *task) trapAt(kind outcome.TrapKind, binding int, off, item uint64) outcome.Trap {
	workgroup, lane := t.lanes.of(item)
	return outcome.Trap{Kind: kind, Binding: uint16(binding), Offset: off, Workgroup: workgroup, Lane: lane}
}

// leastWords is the element count of an elementwise program.
func leastWords(job *backend.Job) uint64 {
	least := uint64(math.MaxUint64)
	for _, span := range job.Spans {
		least = min(least, uint64(len(span.Host))/4)
	}
	return least
}

// serialize makes the task run in order on one goroutine if a span that it writes
// overlaps another, other than being the same: then each element has one reader
// and writer only if blocks do not run side by side.
func (t *task) serialize(job *backend.Job) {
	for i, w := range job.Spans {
		for j, other := range job.Spans {
			if i != j && writes(job, i) {
				if overlaps, same := overlap(w.Host, other.Host); overlaps && !same {
					t.serial = true
				}
			}
		}
	}
}

// shape sets the work of a program of n elements.
func (t *task) shape(job *backend.Job, k kernel, n, perItem uint64) {
	t.kernel, t.items, t.block, t.perItem = k, n, elementBlock, perItem
	t.total = n * 4 * uint64(len(job.Spans))
	t.serialize(job)
}

func prepareMove(t *task, dst, src []byte) {
	n := min(len(dst), len(src))
	t.bytes = [2][]byte{dst[:n], src[:n]}
	t.kernel, t.items, t.block, t.perItem, t.total = moveBlock, uint64(n), byteBlock, 1, 2*uint64(n)
	overlaps, same := overlap(t.bytes[0], t.bytes[1])
	t.serial = overlaps && !same
	// As memmove: towards higher addresses it has to begin at the end.
	t.reverse = t.serial && above(dst, src)
}

func prepareCopyProgram(t *task, job *backend.Job) outcome.Trap {
	n := leastWords(job) * 4
	prepareMove(t, job.Spans[1].Host[:n], job.Spans[0].Host[:n])
	return outcome.Trap{}
}

func prepareFill(t *task, job *backend.Job, pattern uint32) {
	t.words[0] = wordsOf(job.Spans[0].Host)
	t.pattern = pattern
	t.shape(job, fillBlock, uint64(len(t.words[0])), 4)
}

func prepareFillProgram(t *task, job *backend.Job) outcome.Trap {
	prepareFill(t, job, binary.LittleEndian.Uint32(job.Inline))
	return outcome.Trap{}
}

func prepareVecadd(t *task, job *backend.Job) outcome.Trap {
	for i := range t.floats {
		t.floats[i] = floatsOf(job.Spans[i].Host)
	}
	t.shape(job, vecaddBlock, leastWords(job), 4)
	return outcome.Trap{}
}

func prepareSaxpy(t *task, job *backend.Job) outcome.Trap {
	t.floats[0], t.floats[1] = floatsOf(job.Spans[0].Host), floatsOf(job.Spans[1].Host)
	t.scale = math.Float32frombits(binary.LittleEndian.Uint32(job.Inline))
	t.shape(job, saxpyBlock, leastWords(job), 4)
	return outcome.Trap{}
}

func prepareTrap(t *task, job *backend.Job) outcome.Trap {
	n := uint64(len(job.Spans[0].Host)) / 4
	return t.trapAt(outcome.OutOfBounds, 0, n*4, n)
}

// prepareMatvec reports the lowest row that does not fit the bindings, and in it
// the first access in the order of the program: for each column m then x, then y.
func prepareMatvec(t *task, job *backend.Job) outcome.Trap {
	rows := uint64(binary.LittleEndian.Uint32(job.Inline))
	cols := uint64(binary.LittleEndian.Uint32(job.Inline[4:]))
	for i := range t.floats {
		t.floats[i] = floatsOf(job.Spans[i].Host)
	}
	lenM, lenX, lenY := uint64(len(t.floats[0])), uint64(len(t.floats[1])), uint64(len(t.floats[2]))
	bad := lenY
	if cols > 0 {
		bad = min(bad, lenM/cols)
	}
	if cols > lenX {
		bad = 0
	}
	if bad < rows {
		inM := cols > 0 && bad == lenM/cols
		switch {
		case inM && (cols <= lenX || lenM-bad*cols <= lenX):
			return t.trapAt(outcome.OutOfBounds, 0, lenM*4, bad)
		case cols > lenX:
			return t.trapAt(outcome.OutOfBounds, 1, lenX*4, bad)
		default:
			return t.trapAt(outcome.OutOfBounds, 2, lenY*4, bad)
		}
	}
	t.cols = cols
	t.kernel, t.items, t.perItem = matvecBlock, rows, 4
	t.block = max(1, elementBlock/max(cols, 1))
	t.total = rows * cols * 4
	t.serialize(job)
	return outcome.Trap{}
}
