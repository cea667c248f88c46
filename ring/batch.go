package ring

import (
	"reflect"
	"runtime/debug"

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
	// words backs the arguments.
	words []uint64
	// Guess is what the next entry taken probably is; nil: nobody knows.
	Guess *Known
	// known is how many of Entries, counted also beyond their number, may have a Known.
	known int
	// argBytes is the most that one entry may have.
	argBytes uint32
}

// Taken is an entry that was taken, checked as far as it can be without its session.
type Taken struct {
	Entry
	// Words is the entry as it lay in the ring.
	Words [8]uint64
	// Args are the arguments of a launch or a replay as they lay in the arena: those
	// of a launch are Count times four words of a binding (Binding), then the inline
	// bytes. The last word is filled up with zeros. nil unless Code is None.
	Args []uint64
	// Known is what Batch.Guess, or what comes after it, has in common with this entry: all
	// of it but user data and where in the arena the arguments lay. Serial was its.
	Known  *Known
	Serial uint64
	// Code is None, or why the entry cannot be begun: what Check says of it, else
	// LaunchLimit for more arguments than the batch takes, else Invalid for a binding
	// that is none (handle 0, a range that overflows, a zero word that is not).
	Code gpuerr.Code
}

// Known is a launch that was taken before and found in order by itself, as its owner has
// kept it: what a client submits again is compared while it is copied out, and not checked
// anew. The arguments are whole words. Nothing in it is the client's memory.
type Known struct {
	Words  [8]uint64 // with user data and argument offset 0
	Args   []uint64
	After  *Known // what probably comes after it; nil: nobody knows
	Serial uint64 // counted up by the owner when it becomes another
	Of     any    // what the owner makes of it
}

// is reports whether an entry says the same, apart from its arguments.
func (k *Known) is(w *[8]uint64) bool {
	k0 := &k.Words
	return (w[0]^k0[0])|(w[2]^k0[2])|(w[3]^k0[3])|(w[4]^k0[4])|(w[5]^k0[5])|(w[6]^k0[6])>>32|(w[7]^k0[7]) == 0
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

// Forget lets go of all that the batch has of its owner's: the guess, and what was known,
// also of entries of earlier takes that are not in Entries any more.
func (b *Batch) Forget() {
	entries := b.Entries[:b.known]
	for i := range entries {
		entries[i].Known = nil
	}
	b.Guess, b.known = nil, 0
}

// HostBytes is how much memory a batch of NewBatch(argBytes) takes at most.
func HostBytes(argBytes uint32) uint64 {
	return uint64(reflect.TypeFor[Batch]().Size()) + BatchEntries*uint64(reflect.TypeFor[Taken]().Size()) + 8*argWords(max(argBytes, BatchArgBytes))
}

// argWords is how many words n bytes fill.
func argWords(n uint32) uint64 { return (uint64(n) + 7) / 8 }

// TakeMany copies out up to most entries with their arguments, checks the copies and
// gives the slots and the arena bytes back to the client. It takes fewer when there are
// fewer, when completion slots are short, or when the batch is full; 0 without an
// error means that there is nothing to take. When the client has broken the rules it
// answers gpuerr.Protocol, now and ever after, and the client is told.
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
			return s.copyOutLocked(b, most), nil
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
func (s *Server) copyOutLocked(b *Batch, most int) int {
	if b.Entries == nil {
		b.argBytes = max(b.argBytes, BatchArgBytes)
		b.Entries = make([]Taken, 0, BatchEntries)
		b.words = make([]uint64, argWords(BatchArgBytes))
	}
	room := uint64(s.completions) - (s.taken - s.seenHead)
	n := int(min(s.seenTail-s.taken, room, uint64(max(most, 0)), BatchEntries))
	used := uint64(0)
	entries, guess := b.Entries[:n], b.Guess
	b.known = max(b.known, n) // before an access can fault
	for i := range entries {
		t := &entries[i]
		if s.taken+slotsAhead < s.seenTail { // perhaps of the next batch
			s.view.toRead(s.taken+slotsAhead, s.nextArg+argWordsAhead)
		}
		s.view.loadEntry(s.taken, &t.Words)
		t.setWords(&t.Words)
		t.Args, t.Known, t.Code = nil, nil, gpuerr.None
		var known *Known
		if k := guess; k != nil {
			if guess = k.After; t.Op == OpLaunch && k.is(&t.Words) {
				known = k
			}
		}
		var err error
		if known == nil {
			err = Check(&t.Entry, s.ArgBytes)
		} else { // the rest of Check depends on what is the same
			err = checkArgs(&t.Entry, s.ArgBytes)
		}
		if err != nil {
			t.Code = gpuerr.CodeOf(err)
		} else if t.Op == OpLaunch || t.Op == OpReplay {
			off, bytes := t.ArgRange()
			if bytes > b.argBytes {
				t.Code = gpuerr.LaunchLimit
			} else if !s.copyArgsLocked(b, t, known, off, bytes, &used) {
				n = i // the next batch has room for it
				break
			}
		}
		s.taken++
	}
	b.Entries = entries[:n]
	s.consumed = s.taken
	release(s.view.sqHead, s.taken)
	return n
}

// copyArgsLocked copies the arguments of an entry, each word once, and checks the copy, or
// finds that it is that of known, if the rest of the entry is. False means that the batch
// has no room left for them.
//
// +checklocks:s.takeMu
func (s *Server) copyArgsLocked(b *Batch, t *Taken, known *Known, off, bytes uint32, used *uint64) bool {
	words := argWords(bytes)
	if words > uint64(len(b.words))-*used {
		if *used > 0 {
			return false
		}
		b.words = make([]uint64, argWords(b.argBytes)) // once: nothing is larger
	}
	args := b.words[*used : *used+words : *used+words]
	*used += words
	s.nextArg = off/8 + uint32(words)
	if known != nil && uint64(bytes) == 8*uint64(len(known.Args)) {
		if s.view.loadArgsKnown(args, off/8, known.Args) {
			t.Args, t.Known, t.Serial = args, known, known.Serial
			return true
		}
	} else {
		s.view.loadArgs(args, off/8)
	}
	if part := bytes % 8; part != 0 {
		args[words-1] &= 1<<(8*part) - 1
	}
	if t.Op == OpLaunch {
		for i := 0; i+4 <= 4*int(t.Count); i += 4 {
			w := args[i : i+4 : i+4]
			if w[0] == 0 || w[1]+w[2] < w[2] || w[3] != 0 {
				t.Code = gpuerr.Invalid
				return true
			}
		}
	}
	t.Args = args
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

// Publish is CompleteMany and then Flush.
func (s *Server) Publish(cs []Completion) {
	if s.publish(cs) {
		s.done.Signal() // fails only when closed, and then nobody waits
	}
}
