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
// parts. It is valid until the mapping ends. The mapping lies outside of
// Go's heap, is at least page-aligned, and every offset was checked against it.
//
// Whatever the peer may write is loaded atomically, which reads it exactly once;
// places, kept slots, entries and arena are stored plainly, and published by the
// atomic store of a position. sqLast is stored while the driver may look at it: see
// storeLast. Words lie in the host's order, so only little-endian hosts qualify.
//
// A side that stores a word and then looks at one of the peer's (publish, then
// is it asleep? arm, then is there work?) stores with Swap: the look must not
// overtake the store. An atomic Store is sequentially consistent in Go's memory
// model, but in a program built with the race detector it is only a release
// (compiler-rt, tsan_interface_atomic.cpp, __tsan_go_atomic32_store), and wakes
// are lost. On amd64 both are the same instruction.
type view struct {
	sqTail, cqHead *atomic.Uint64
	sqLast         *uint64
	cqWait         *atomic.Uint32
	sqHead         *atomic.Uint64
	sqWait, state  *atomic.Uint32

	places  []uint64 // see place.go
	kept    [][keptWords]uint64
	sq      [][8]uint64
	cq      []uint64    // see completion.go
	records [][4]uint64 // as many
	args    []uint64    // the arena
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
	return view{
		sqTail:  (*atomic.Uint64)(at(offSQTail)),
		sqLast:  (*uint64)(at(offSQLast)),
		cqHead:  (*atomic.Uint64)(at(offCQHead)),
		cqWait:  (*atomic.Uint32)(at(offCQWait)),
		sqHead:  (*atomic.Uint64)(at(offSQHead)),
		sqWait:  (*atomic.Uint32)(at(offSQWait)),
		state:   (*atomic.Uint32)(at(offState)),
		places:  unsafe.Slice((*uint64)(at(l.places)), l.Entries),
		kept:    unsafe.Slice((*[keptWords]uint64)(at(l.kept)), l.slots),
		sq:      unsafe.Slice((*[8]uint64)(at(l.sq)), l.Entries),
		cq:      unsafe.Slice((*uint64)(at(l.cq)), l.completions),
		records: unsafe.Slice((*[4]uint64)(at(l.records)), l.completions),
		args:    unsafe.Slice((*uint64)(at(l.arena)), l.ArgBytes/8),
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
		places: u32(offPlaces), kept: u32(offKept), slots: u32(offSlots),
	}
}

// storeHeader writes a header, before anybody else has the memory.
func storeHeader(b []byte, h header) {
	le := binary.LittleEndian
	le.PutUint64(b[offMagic:], h.magic)
	for off, v := range map[int]uint32{
		offVersion: h.version, offEntries: h.entries, offCompletions: h.completions, offArgBytes: h.argBytes,
		offSQ: h.sq, offCQ: h.cq, offArena: h.arena, offRecords: h.records,
		offPlaces: h.places, offKept: h.kept, offSlots: h.slots,
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

// place is that of the entry at a position.
func (v *view) place(pos uint64) *uint64 { return &v.places[pos&uint64(len(v.places)-1)] }

// entry is the slot of the submission queue for a position.
func (v *view) entry(pos uint64) *[8]uint64 { return &v.sq[pos&uint64(len(v.sq)-1)] }

// loadWords copies words out, as many as there is room for, each once.
func loadWords(to, from []uint64) {
	from = from[:len(to)]
	for i := range to {
		to[i] = atomic.LoadUint64(&from[i])
	}
}

// word is that of the completion at a position.
func (v *view) word(pos uint64) *uint64 { return &v.cq[pos&uint64(len(v.cq)-1)] }

// loadRecord copies the record of a completion out, each word once.
func (v *view) loadRecord(pos uint64, w *[4]uint64) {
	slot := &v.records[pos&uint64(len(v.records)-1)]
	w[0], w[1] = atomic.LoadUint64(&slot[0]), atomic.LoadUint64(&slot[1])
	w[2], w[3] = atomic.LoadUint64(&slot[2]), atomic.LoadUint64(&slot[3])
}

// ahead asks for the lines of a take of n entries from pos on, and of their completions: both
// positions, the places, and the words, of which those beyond the end of the ring are left out.
func (v *view) ahead(pos uint64, n int) {
	prefetch.Two((*uint64)(unsafe.Pointer(v.sqTail)), (*uint64)(unsafe.Pointer(v.sqHead)))
	at := int(pos) & (len(v.places) - 1)
	prefetch.Words(v.places[at:min(at+n, len(v.places))])
	at = int(pos) & (len(v.cq) - 1)
	prefetch.ToWrite(v.cq[at:min(at+n, len(v.cq))])
}
