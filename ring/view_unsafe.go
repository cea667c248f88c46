package ring

import (
	"encoding/binary"
	"runtime"
	"sync/atomic"
	"unsafe"

	"capgpu/gpuerr"
)

// view is a mapped ring: pointers to the words of the header and slices over the
// parts. It is valid until the mapping ends. The mapping is aligned to a line at
// least, and every offset was checked against it.
//
// A word that the peer may write is loaded atomically, which reads it exactly once;
// entries, completions and arena are stored plainly, and published by an atomic store
// behind them. Words lie in the host's order, so only little-endian hosts qualify.
//
// A side that stores a word and then looks at one of the peer's (publish, then
// is it asleep? arm, then is there work?) stores with Swap: the look must not
// overtake the store. An atomic Store is sequentially consistent in Go's memory
// model, but in a program built with the race detector it is only a release
// (compiler-rt, tsan_interface_atomic.cpp, __tsan_go_atomic32_store), and wakes
// are lost. On amd64 both are the same instruction.
type view struct {
	sqTail, cqHead, sqHead *atomic.Uint64
	cqWait, sqWait, state  *atomic.Uint32

	sq   [][entryWords]uint64
	cq   [][completionWords]uint64 // see completion.go
	args []uint64                  // the arena
}

// viewOf lays a view over a mapping of at least l.bytes bytes.
func viewOf(b []byte, l layout) (view, error) {
	if uint64(len(b)) < l.bytes {
		return view{}, gpuerr.New(gpuerr.Internal, "a ring of %d bytes does not fit a mapping of %d", l.bytes, len(b))
	}
	if uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		return view{}, gpuerr.New(gpuerr.Internal, "the memory of a ring is not aligned to words")
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return view{}, gpuerr.New(gpuerr.Unimplemented, "rings need a little-endian host")
	}
	at := func(off uint32) unsafe.Pointer { return unsafe.Pointer(&b[off]) }
	return view{
		sqTail: (*atomic.Uint64)(at(offSQTail)),
		cqHead: (*atomic.Uint64)(at(offCQHead)),
		sqHead: (*atomic.Uint64)(at(offSQHead)),
		cqWait: (*atomic.Uint32)(at(offCQWait)),
		sqWait: (*atomic.Uint32)(at(offSQWait)),
		state:  (*atomic.Uint32)(at(offState)),
		sq:     unsafe.Slice((*[entryWords]uint64)(at(l.sq)), l.Entries),
		cq:     unsafe.Slice((*[completionWords]uint64)(at(l.cq)), l.completions),
		args:   unsafe.Slice((*uint64)(at(l.arena)), l.ArgBytes/8),
	}, nil
}

// entry is the slot of the submission queue for a position.
func (v *view) entry(pos uint64) *[entryWords]uint64 { return &v.sq[pos&uint64(len(v.sq)-1)] }

// completion is the slot of the completion queue for a position.
func (v *view) completion(pos uint64) *[completionWords]uint64 {
	return &v.cq[pos&uint64(len(v.cq)-1)]
}

// loadWords copies words out, as many as there is room for, each once.
func loadWords(to, from []uint64) {
	from = from[:len(to)]
	for i := range to {
		to[i] = atomic.LoadUint64(&from[i])
	}
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
		sq: u32(offSQ), cq: u32(offCQ), arena: u32(offArena),
	}
}

// storeHeader writes a header, before anybody else has the memory.
func storeHeader(b []byte, h header) {
	le := binary.LittleEndian
	le.PutUint64(b[offMagic:], h.magic)
	for off, v := range map[int]uint32{
		offVersion: h.version, offEntries: h.entries, offCompletions: h.completions, offArgBytes: h.argBytes,
		offSQ: h.sq, offCQ: h.cq, offArena: h.arena,
	} {
		le.PutUint32(b[off:], v)
	}
}
