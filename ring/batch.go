package ring

import (
	"reflect"
	"runtime/debug"
	"sync/atomic"

	"capgpu/gpuerr"
)

// Bounds of what one TakeMany copies out.
const (
	// BatchEntries is the most entries.
	BatchEntries = 64
	// BatchArgBytes is the most bytes of arguments, unless one entry has more.
	BatchArgBytes = 16 << 10
)

// Batch is what one look at the submission side copied out. It is made once per queue
// and used again: what is in it is good until the next TakeMany. Nothing in it is
// the client's memory.
type Batch struct {
	// Entries are in the order of the ring.
	Entries []Taken
	// Kept is what is known of the kept slots, by their numbers: nil, or too short, where
	// nothing is. Its owner, who sets it before each take, may forget of it what and when he
	// likes, and puts there what was taken of a slot (Known.Keep).
	Kept []*Known
	// words backs the arguments.
	words []uint64
	// named backs what Servant.Served is given.
	named [BatchEntries]uint8
	// known is how many of Entries, counted also beyond their number, may have a Known.
	known int
	// argBytes is the most that one entry may have.
	argBytes uint32
}

// Taken is an entry that was taken, checked as far as it can be without its session.
type Taken struct {
	// Known is what was known of the kept slot in which the entry is, when it was taken under
	// the version that the slot has now: then that is all, with Slot and Version, and of what
	// follows only Op and Code (None) are good. Expand makes the rest.
	Known *Known
	// Slot is the kept slot in which the entry is, -1 for none, and Version the version that
	// the client named.
	Slot    int
	Version uint32
	// Code is None, or why the entry cannot be begun: what Check says of it, else
	// LaunchLimit for more arguments than the batch takes, else Invalid for a binding
	// that is none (handle 0, a range that overflows, a zero word that is not), or for
	// what a kept slot cannot have.
	Code gpuerr.Code
	Entry
	// Args are the arguments of a launch or a replay as they lay in the ring: those
	// of a launch are Count times four words of a binding (Binding), then the inline
	// bytes. The last word is filled up with zeros. nil unless Code is None.
	Args []uint64
	// Words is the entry as it lay in the ring.
	Words [entryWords]uint64
}

// Known is what a kept slot says, as its owner has kept it since it was taken and found in
// order by itself: what names it again is not read, nor checked anew. The arguments are
// whole words. Nothing in it is the client's memory.
type Known struct {
	Version uint32
	Args    []uint64
	Words   [entryWords]uint64
}

// Keep makes k what was taken of a kept slot, all of it (Known is nil and Code None).
func (k *Known) Keep(t *Taken) {
	if len(t.Args) > cap(k.Args) {
		k.Args = make([]uint64, 0, len(t.Args)) // append would take more
	}
	k.Version, k.Words, k.Args = t.Version, t.Words, append(k.Args[:0], t.Args...)
}

// Expand gives an entry that has a Known all the rest, and no Known any more. Args are those
// of Known, and good until that becomes another. If it is another already, which only a
// client brings about that has written a slot too early, the entry is Invalid.
func (t *Taken) Expand() {
	k := t.Known
	if k == nil {
		return
	}
	t.Known = nil
	if k.Version != t.Version {
		t.Code, t.Words, t.Args = gpuerr.Invalid, [entryWords]uint64{}, nil
	} else {
		t.Words, t.Args = k.Words, k.Args
	}
	op := t.Op
	t.setWords(&t.Words)
	t.Op = op // of one that is refused, too
}

// Binding is the i-th of a launch, with i below Count.
func (t *Taken) Binding(i int) Binding {
	w := t.Args[4*i : 4*i+4 : 4*i+4]
	return Binding{Buffer: w[0], Off: w[1], Len: w[2]}
}

// NewBatch makes a batch whose entries have at most argBytes of arguments, each; less
// than BatchArgBytes means BatchArgBytes. Its memory is allocated when it is first
// needed.
func NewBatch(argBytes uint32) *Batch {
	return &Batch{argBytes: max(argBytes, BatchArgBytes)}
}

// Forget lets go of all that the batch has of its owner's: what is known, also by entries
// of earlier takes that are not in Entries any more.
func (b *Batch) Forget() {
	entries := b.Entries[:max(b.known, len(b.Entries))]
	for i := range entries {
		entries[i].Known = nil
	}
	b.Kept, b.known = nil, 0
}

// HostBytes is how much memory a batch of NewBatch(argBytes) takes at most.
func HostBytes(argBytes uint32) uint64 {
	return uint64(reflect.TypeFor[Batch]().Size()) + BatchEntries*uint64(reflect.TypeFor[Taken]().Size()) + 8*argWords(max(argBytes, BatchArgBytes))
}

// argWords is how many words n bytes fill.
func argWords(n uint32) uint64 { return (uint64(n) + 7) / 8 }

// TakeMany copies out up to most entries with their arguments, checks the copies and
// gives the slots and the arena bytes back to the client. Of what is known (Batch.Kept)
// it copies nothing. It takes fewer when there are fewer, when completion slots are short,
// or when the batch is full; 0 without an error means that there is nothing to take. When
// the client has broken the rules it answers gpuerr.Protocol, now and ever after, and the
// client is told; what came before that in the same batch is taken.
func (s *Server) TakeMany(b *Batch, most int) (n int, err error) {
	return s.SpinTake(b, most, 0)
}

// SpinTake is TakeMany that looks again so many times while there is nothing to take,
// with a pause between (SpinsFor). Close ends it.
func (s *Server) SpinTake(b *Batch, most, spins int) (n int, err error) {
	b.Entries = b.Entries[:0]
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), &err)
	for {
		want, err := s.lookLocked()
		if err != nil {
			return 0, err
		}
		if want == awake {
			return s.copyOutLocked(b, most)
		}
		if spins <= 0 || s.ending.Load() {
			return 0, nil
		}
		spins--
		pause()
	}
}

// copyOutLocked takes the entries that lookLocked has seen.
//
// +checklocks:s.takeMu
func (s *Server) copyOutLocked(b *Batch, most int) (n int, err error) {
	b.allocate()
	n = s.mayTakeLocked(most)
	free, entries := b.words, b.Entries[:n]
	b.known = max(b.known, n) // before an access can fault
	for i := range entries {
		t := &entries[i]
		var ok bool
		if t.Slot, t.Version, ok = placeAt(s.taken, s.placeLocked(s.taken), len(s.view.kept)); !ok {
			n, err = i, s.failLocked(errPlace)
			break
		}
		if uint(t.Slot) < uint(len(b.Kept)) {
			if k := b.Kept[t.Slot]; k != nil && k.Version == t.Version {
				t.know(k)
				s.taken++
				continue
			}
		}
		if t.Known = nil; !s.copyEntryLocked(b, t, &free) {
			n = i // the next batch has room for it
			break
		}
		s.taken++
	}
	b.Entries = entries[:n]
	s.consumed = s.taken
	storeRelease(s.view.sqHead, s.taken)
	if n > 0 {
		s.last = n
		return n, nil // an error is for the next call
	}
	return 0, err
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

// mayTakeLocked is how many entries can be taken of those that were seen.
//
// +checklocks:s.takeMu
func (s *Server) mayTakeLocked(most int) int {
	room := uint64(s.completions) - (s.taken - s.seenHead)
	return int(min(s.seenTail-s.taken, room, uint64(max(most, 0)), BatchEntries))
}

// placeLocked reads where the entry at a position is, which was seen.
//
// +checklocks:s.takeMu
func (s *Server) placeLocked(pos uint64) uint64 {
	if pos+1 == s.seenTail && uint16(s.seenLast) == uint16(pos) {
		return s.seenLast
	}
	return atomic.LoadUint64(s.view.place(pos))
}

// nameLocked takes entries that lookServingLocked has seen, as long as all that they say is
// known, and returns their slots. What is not known, or breaks the rules, is for copyOutLocked,
// which comes to it next.
//
// +checklocks:s.takeMu
func (s *Server) nameLocked(b *Batch, most int) (named []uint8) {
	most = s.mayTakeLocked(most)
	n, pos := 0, s.taken
	for ; n < most; n++ {
		slot, version, ok := placeAt(pos, s.placeLocked(pos), len(s.view.kept))
		if !ok || uint(slot) >= uint(len(b.Kept)) {
			break
		}
		if k := b.Kept[slot]; k == nil || k.Version != version {
			break
		}
		b.named[n] = uint8(slot)
		pos++
	}
	if n > 0 {
		s.taken, s.consumed, s.last = pos, pos, n
		storeRelease(s.view.sqHead, pos)
	}
	return b.named[:n]
}

// spell puts what is named into Entries.
func (b *Batch) spell(named []uint8) {
	b.allocate()
	b.Entries = b.Entries[:len(named)]
	b.known = max(b.known, len(named))
	for i, slot := range named {
		t, k := &b.Entries[i], b.Kept[slot]
		t.Slot, t.Version = int(slot), k.Version
		t.know(k)
	}
}

// know makes t an entry in its slot of which all is known.
func (t *Taken) know(k *Known) { t.Known, t.Op, t.Code = k, Op(k.Words[0]), gpuerr.None }

// copyEntryLocked copies an entry out of the submission queue, or of its kept slot, each
// word once, and checks the copy. False means that the batch has no room left for its
// arguments, of which it has so many words free.
//
// +checklocks:s.takeMu
func (s *Server) copyEntryLocked(b *Batch, t *Taken, free *[]uint64) bool {
	entry, args, kept := s.view.entry(s.taken)[:], s.view.args, t.Slot >= 0
	if kept {
		entry, args = s.view.kept[t.Slot][:entryWords], s.view.kept[t.Slot][entryWords:]
	}
	loadWords(t.Words[:], entry)
	t.setWords(&t.Words)
	t.Args, t.Code = nil, gpuerr.None
	err := Check(&t.Entry, uint32(8*len(args)))
	if err == nil && kept {
		err = checkKept(&t.Entry)
	}
	if err != nil {
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
	loadWords(t.Args, args[off/8:])
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

// Ready says whether the client has published an entry that was not taken. It is a
// hint: nothing of it is checked, nor whether there is room for the completion.
func (s *Server) Ready() (ready bool) {
	s.takeMu.Lock()
	defer s.takeMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	return s.err == nil && s.view.sqTail.Load() != s.taken
}

// CompleteMany writes the completions of the oldest entries that have none. Their slots
// are free because TakeMany took no more than there was room for. The client sees them
// after Flush.
func (s *Server) CompleteMany(cs []Completion) {
	s.doneMu.Lock()
	defer s.doneMu.Unlock()
	defer s.guard(debug.SetPanicOnFault(true), nil)
	if !s.closed && !s.gone.Load() {
		s.completeLocked(cs)
	}
}

// +checklocks:s.doneMu
func (s *Server) completeLocked(cs []Completion) {
	for i := range cs {
		c := &cs[i]
		word := uint64(lapOf(s.completed, s.completions))
		if c.fits() {
			word |= c.DeviceNanos << wordNanosShift
		} else {
			word |= wordRecord
			s.view.records[s.completed&uint64(len(s.view.records)-1)] = c.words()
		}
		if s.completed == s.published {
			s.first = word
		} else {
			*s.view.word(s.completed) = word
		}
		s.completed++
	}
}

// completeOKLocked is completeLocked of completions that are ok, each with its device time.
//
// +checklocks:s.doneMu
func (s *Server) completeOKLocked(nanos []uint64) {
	if len(nanos) == 0 {
		return
	}
	if s.completed == s.published {
		s.first = okWordAt(s.completed, s.completions, nanos[0])
		s.completed++
		nanos = nanos[1:]
	}
	for len(nanos) > 0 { // of one lap
		words := s.view.cq[s.completed&uint64(len(s.view.cq)-1):]
		words = words[:min(len(words), len(nanos))]
		lap := okWordAt(s.completed, s.completions, 0)
		for i, n := range nanos[:len(words)] {
			words[i] = lap | min(n, maxWordNanos)<<wordNanosShift
		}
		s.completed += uint64(len(words))
		nanos = nanos[len(words):]
	}
}

// Publish is CompleteMany and then Flush.
func (s *Server) Publish(cs []Completion) {
	if s.publish(cs, nil) {
		s.done.Signal() // fails only when closed, and then nobody waits
	}
}

// PublishOK is Publish of completions that are all ok, with device times of so many
// nanoseconds. More than three days are told as that.
func (s *Server) PublishOK(nanos []uint64) {
	if s.publish(nil, nanos) {
		s.done.Signal()
	}
}
