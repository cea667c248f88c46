package ring

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"

	"capgpu/gpuerr"
)

// Bounds of one TakeMany.
const (
	// BatchEntries is the most entries that it copies out.
	BatchEntries = 64
	// BatchArgBytes is the most bytes of arguments, unless one entry has more.
	BatchArgBytes = 16 << 10
)

// Batch is what one TakeMany copied out. It is made once and used again, for one ring or
// for many: its content is good until the next TakeMany. Nothing in it is the client's
// memory.
type Batch struct {
	// Entries are in the order of the ring.
	Entries []Taken
	// words backs the arguments.
	words []uint64
	// argBytes is the most that one entry may have.
	argBytes uint32
}

// Taken is an entry that was taken, checked as far as it can be without its session.
type Taken struct {
	Entry
	// Args are the arguments of a launch or a replay as they lay in the ring: those
	// of a launch are Count times four words of a binding (Binding), then the inline
	// bytes. The last word is filled up with zeros. nil unless Code is None.
	Args []uint64
	// Code is None, or why the entry cannot be begun: what Check says of it, else
	// LaunchLimit for more arguments than the batch takes, else Invalid for a binding
	// that is none (handle 0, a range that overflows, a zero word that is not).
	Code gpuerr.Code
}

// Binding is the i-th of a launch, with i below Count.
func (t *Taken) Binding(i int) Binding {
	w := t.Args[4*i : 4*i+4 : 4*i+4]
	return Binding{Buffer: w[0], Off: w[1], Len: w[2]}
}

// NewBatch makes a batch of entries with at most argBytes of arguments, each; less
// than BatchArgBytes means BatchArgBytes. Its memory is allocated when it is first
// needed.
func NewBatch(argBytes uint32) *Batch {
	return &Batch{argBytes: max(argBytes, BatchArgBytes)}
}

// HostBytes is how much memory a batch of NewBatch(argBytes) takes at most.
func HostBytes(argBytes uint32) uint64 {
	return uint64(reflect.TypeFor[Batch]().Size()) + BatchEntries*uint64(reflect.TypeFor[Taken]().Size()) + 8*argWords(max(argBytes, BatchArgBytes))
}

// argWords is how many words n bytes fill.
func argWords(n uint32) uint64 { return (uint64(n) + 7) / 8 }

// TakeMany copies out up to most entries with their arguments, checks the copies and
// gives the slots and the arena bytes back to the client. It takes fewer when there are
// fewer, when completion slots are short, or when the batch is full; 0 without an error
// means that there is nothing to take. It never waits. When the client has broken the rules
// it answers gpuerr.Protocol, now and ever after, and the client is told.
func (s *Server) TakeMany(b *Batch, most int) (n int, err error) {
	b.Entries = b.Entries[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	want, err := s.lookLocked()
	if err != nil || want != awake {
		return 0, err
	}
	return s.copyOutLocked(b, most), nil
}

// copyOutLocked takes the entries that lookLocked has seen.
//
// +checklocks:s.mu
func (s *Server) copyOutLocked(b *Batch, most int) int {
	b.allocate()
	room := uint64(s.completions) - (s.taken - s.seenHead)
	n := int(min(s.seenTail-s.taken, room, uint64(max(most, 0)), BatchEntries))

	free, entries := b.words, b.Entries[:n]
	for i := range entries {
		if !s.copyEntryLocked(b, &entries[i], &free) {
			n = i // the next batch has room for it
			break
		}
		s.taken++
	}
	b.Entries = entries[:n]
	storeRelease(s.view.sqHead, s.taken)
	return n
}

// allocate makes what entries are taken to, when it is first needed.
func (b *Batch) allocate() {
	if b.Entries != nil {
		return
	}
	b.argBytes = max(b.argBytes, BatchArgBytes)
	b.Entries = make([]Taken, 0, BatchEntries)
	b.words = make([]uint64, argWords(BatchArgBytes))
}

// copyEntryLocked copies the next entry out, each word once, and checks the copy. False
// means that the batch has no room left for its arguments, of which it has so many words
// free.
//
// +checklocks:s.mu
func (s *Server) copyEntryLocked(b *Batch, t *Taken, free *[]uint64) bool {
	from := s.view.entry(s.taken)
	w := [entryWords]uint64{
		atomic.LoadUint64(&from[0]), atomic.LoadUint64(&from[1]), atomic.LoadUint64(&from[2]), atomic.LoadUint64(&from[3]),
		atomic.LoadUint64(&from[4]), atomic.LoadUint64(&from[5]), atomic.LoadUint64(&from[6]), atomic.LoadUint64(&from[7]),
	}
	t.SetWords(&w)
	t.Args, t.Code = nil, gpuerr.None
	if err := Check(&t.Entry, s.ArgBytes); err != nil {
		t.Code = gpuerr.CodeOf(err)
		return true
	}
	if t.Op != OpLaunch && t.Op != OpReplay {
		return true
	}

	off, bytes := t.ArgRange()
	if bytes > b.argBytes {
		t.Code = gpuerr.LaunchLimit
		return true
	}
	words := argWords(bytes)
	if words > uint64(len(*free)) {
		if len(*free) < len(b.words) {
			return false
		}
		b.words = make([]uint64, argWords(b.argBytes)) // once: nothing is larger
		*free = b.words
	}
	t.Args, *free = (*free)[:words:words], (*free)[words:]
	loadWords(t.Args, s.view.args[off/8:])
	if part := bytes % 8; part != 0 {
		t.Args[words-1] &= 1<<(8*part) - 1
	}
	if t.Op == OpLaunch && !t.bindingsAreSome() {
		t.Args, t.Code = nil, gpuerr.Invalid
	}
	return true
}

// bindingsAreSome reports whether each binding of a launch is one, as far as it can be said
// without its session.
func (t *Taken) bindingsAreSome() bool {
	for i := 0; i < 4*int(t.Count); i += 4 {
		w := t.Args[i : i+4 : i+4]
		if w[0] == 0 || w[1]+w[2] < w[2] || w[3] != 0 {
			return false
		}
	}
	return true
}
