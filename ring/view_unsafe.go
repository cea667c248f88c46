package ring

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"unsafe"

	"capgpu/gpuerr"
	"capgpu/internal/prefetch"
)

// view is a mapped ring: pointers to the words of the header and slices over the
// three parts. It is valid until the mapping ends. The mapping lies outside of
// Go's heap, is at least page-aligned, and every offset was checked against it.
//
// Whatever the peer may write is loaded atomically, which reads it exactly once;
// slots and arena are stored plainly, and published by the atomic store of a
// position. Words lie in the host's order, so only little-endian hosts qualify.
//
// A side that stores a word and then looks at one of the peer's (publish, then
// is it asleep? arm, then is there work?) stores with Swap: the look must not
// overtake the store. An atomic Store is sequentially consistent in Go's memory
// model, but in a program built with the race detector it is only a release
// (compiler-rt, tsan_interface_atomic.cpp, __tsan_go_atomic32_store), and wakes
// are lost. On amd64 both are the same instruction.
type view struct {
	sqTail, cqHead *atomic.Uint64
	cqWait         *atomic.Uint32
	sqHead         *atomic.Uint64
	sqWait, state  *atomic.Uint32

	sq      [][8]uint64
	cq      []uint64    // see completion.go
	records [][4]uint64 // as many
	args    []uint64    // the arena
	bytes   []byte      // the same
}

// viewOf lays a view over a mapping of at least l.bytes bytes.
func viewOf(b []byte, l layout) (view, error) {
	if uint64(len(b)) < l.bytes {
		return view{}, gpuerr.New(gpuerr.Internal, "a ring of %d bytes does not fit a mapping of %d", l.bytes, len(b))
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return view{}, gpuerr.New(gpuerr.Unimplemented, "rings need a little-endian host")
	}
	at := func(off uint32) unsafe.Pointer { return unsafe.Pointer(&b[off]) }
	arena := b[l.arena : uint64(l.arena)+uint64(l.ArgBytes)]
	return view{
		sqTail:  (*atomic.Uint64)(at(offSQTail)),
		cqHead:  (*atomic.Uint64)(at(offCQHead)),
		cqWait:  (*atomic.Uint32)(at(offCQWait)),
		sqHead:  (*atomic.Uint64)(at(offSQHead)),
		sqWait:  (*atomic.Uint32)(at(offSQWait)),
		state:   (*atomic.Uint32)(at(offState)),
		sq:      unsafe.Slice((*[8]uint64)(at(l.sq)), l.Entries),
		cq:      unsafe.Slice((*uint64)(at(l.cq)), l.completions),
		records: unsafe.Slice((*[4]uint64)(at(l.records)), l.completions),
		args:    unsafe.Slice((*uint64)(at(l.arena)), l.ArgBytes/8),
		bytes:   arena,
	}, nil
}

// faultIn reports whether a panic is a fault of an access of b.
func faultIn(p any, b []byte) bool {
	err, ok := p.(runtime.Error)
	if !ok {
		return false
	}
	at, ok := err.(interface{ Addr() uintptr })
	return ok && len(b) > 0 && at.Addr()-uintptr(unsafe.Pointer(unsafe.SliceData(b))) < uintptr(len(b))
}

// loadHeader reads each word of a header once. b is a mapped page.
func loadHeader(b []byte) header {
	u32 := func(off uintptr) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[off]))) }
	return header{
		magic:   atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[offMagic]))),
		version: u32(offVersion), entries: u32(offEntries), completions: u32(offCompletions), argBytes: u32(offArgBytes),
		sq: u32(offSQ), cq: u32(offCQ), arena: u32(offArena), records: u32(offRecords),
	}
}

// storeHeader writes a header, before anybody else has the memory.
func storeHeader(b []byte, h header) {
	le := binary.LittleEndian
	le.PutUint64(b[offMagic:], h.magic)
	for off, v := range map[int]uint32{
		offVersion: h.version, offEntries: h.entries, offCompletions: h.completions, offArgBytes: h.argBytes,
		offSQ: h.sq, offCQ: h.cq, offArena: h.arena, offRecords: h.records,
	} {
		le.PutUint32(b[off:], v)
	}
}

// corrupt changes a word of a local ring's memory, in one step.
func corrupt(b []byte, word int, change func(old uint64) uint64) {
	p := (*uint64)(unsafe.Pointer(&b[8*word]))
	for {
		old := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, old, change(old)) {
			return
		}
	}
}

// loadEntry copies an entry out, each word once.
func (v *view) loadEntry(pos uint64, w *[8]uint64) {
	slot := &v.sq[pos&uint64(len(v.sq)-1)]
	w[0], w[1] = atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1])
	w[2], w[3] = atomic.LoadUint64(&slot[2]), atomic.LoadUint64(&slot[3])
	w[4], w[5] = atomic.LoadUint64(&slot[4]), atomic.LoadUint64(&slot[5])
	w[6], w[7] = atomic.LoadUint64(&slot[6]), atomic.LoadUint64(&slot[7])
}

// word is that of the completion at a position.
func (v *view) word(pos uint64) *uint64 { return &v.cq[pos&uint64(len(v.cq)-1)] }

// loadRecord copies the record of a completion out, each word once.
func (v *view) loadRecord(pos uint64, w *[4]uint64) {
	slot := &v.records[pos&uint64(len(v.records)-1)]
	w[0], w[1] = atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1])
	w[2], w[3] = atomic.LoadUint64(&slot[2]), atomic.LoadUint64(&slot[3])
}

// loadArg reads one word of the arena, once; i counts words.
func (v *view) loadArg(i uint32) uint64 { return atomic.LoadUint64(&v.args[i]) }

// loadArgs copies words of the arena out, each once; from counts words.
func (v *view) loadArgs(to []uint64, from uint32) {
	src := v.args[from:]
	src = src[:len(to)]
	for i := range to {
		to[i] = atomic.LoadUint64(&src[i])
	}
}

// copyWordsPlain is copyWords without the help of the processor.
func copyWordsPlain(to, from, known *uint64, n int) (differ uint64) {
	dst, src, same := unsafe.Slice(to, n), unsafe.Slice(from, n), unsafe.Slice(known, n)
	for i := range src {
		w := atomic.LoadUint64(&src[i])
		dst[i] = w
		differ |= w ^ same[i]
	}
	return differ
}

// loadArgsKnown is loadArgs, and reports whether they are those of known, which are as many.
func (v *view) loadArgsKnown(to []uint64, from uint32, known []uint64) bool {
	if len(to) == 0 {
		return true
	}
	src, same := v.args[from:][:len(to)], known[:len(to)]
	return copyWords(&to[0], &src[0], &same[0], len(to)) == 0
}

// How far ahead of a copy the lines are asked for: enough to hide what it takes to get
// them from the other processor, some hundred nanoseconds.
const (
	slotsAhead    = 8
	argWordsAhead = slotsAhead * 128 / 8 // of usual launches
)

// argsToRead asks for two lines of the arena.
func (v *view) argsToRead(word uint32) {
	if word+lineBytes/8 < uint32(len(v.args)) {
		prefetch.Two(&v.args[word], &v.args[word+lineBytes/8])
	}
}

// toRead asks for a slot and a word of the arena that are about to be loaded. Positions
// and words count round the ring and the arena.
func (v *view) toRead(pos uint64, word uint32) {
	if word >= uint32(len(v.args)) {
		word = 0
	}
	prefetch.Two(&v.sq[pos&uint64(len(v.sq)-1)][0], &v.args[word])
}

// headToRead asks for the driver's and the client's positions and a completion's word.
func (v *view) headToRead(pos uint64) {
	prefetch.Two((*uint64)(unsafe.Pointer(v.sqTail)), (*uint64)(unsafe.Pointer(v.sqHead)))
	prefetch.Two(v.word(pos), v.word(pos))
}
