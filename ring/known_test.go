package ring

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// TestCopyWords holds copyWords against the plain one: what is copied, and which words
// differ.
func TestCopyWords(t *testing.T) {
	const most = 21
	var from, known, to, plain [most + 2]uint64
	for i := range from {
		from[i] = rand.Uint64()
	}
	for n := 1; n <= most; n++ {
		for off := range 2 {
			for change := -1; change < n; change++ {
				copy(known[1:], from[off:])
				if change >= 0 {
					known[1+change] ^= 1 << rand.IntN(64)
				}
				clear(to[:])
				clear(plain[:])
				differ := copyWords(&to[off], &from[off], &known[1], n)
				same := copyWordsPlain(&plain[off], &from[off], &known[1], n)
				if to != plain || !slices.Equal(to[off:off+n], from[off:off+n]) {
					t.Fatalf("%d words from %d: copied %x, plainly %x", n, off, to, plain)
				}
				if (differ != 0) != (change >= 0) || (same != 0) != (change >= 0) {
					t.Fatalf("%d words from %d, the one changed is %d: %#x, plainly %#x", n, off, change, differ, same)
				}
			}
		}
	}
}

// knownOf is what an owner keeps of a launch that was taken.
func knownOf(x *Taken) *Known {
	k := &Known{Words: x.Words, Args: slices.Clone(x.Args)}
	k.Words[1] = 0
	k.Words[6] &^= 0xffffffff
	return k
}

// TestGuess takes the same from two rings, from one of them with guesses, which are right,
// wrong, or of something else: what is taken is the same. An entry is known if, and only
// if, it is what was guessed.
//
// +checklocksignore: nobody else has it
func TestGuess(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w := newTwins(t, 8, 1024)
	batches := [2]*Batch{NewBatch(0), NewBatch(0)}
	var seen []*Known
	hits, misses := 0, 0
	for range 20_000 {
		e := LaunchEntry(r.Uint64(), uint64(1+r.IntN(2)), Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, 0)
		bindings := []Binding{{Buffer: uint64(r.IntN(3)), Len: 16}, {Buffer: 2, Off: uint64(r.IntN(2))}}[:r.IntN(3)]
		inline := make([]byte, r.IntN(3)*4)
		pushed := true
		for i := range w.c {
			e := e
			pushed = w.c[i].Push(&e, bindings, inline) == nil && pushed
			flush(t, w.c[i])
		}
		if !pushed {
			t.Fatal("there is no room")
		}
		if r.IntN(4) == 0 { // the client changes the entry, or an argument, behind our back
			pos := w.c[0].pushed - 1
			word, bit := r.IntN(8), uint64(1)<<r.IntN(64)
			arg := r.IntN(1024 / 8)
			inArgs := r.IntN(2) == 0
			for i := range w.s {
				if inArgs {
					w.s[i].view.args[arg] ^= bit
				} else {
					w.s[i].view.sq[pos%8][word] ^= bit
				}
			}
		}
		var guess *Known
		if len(seen) > 0 {
			guess = seen[r.IntN(len(seen))]
		}
		batches[1].Guess = guess
		for i, s := range w.s {
			if n, err := s.TakeMany(batches[i], 1); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		plain, guessed := &batches[0].Entries[0], &batches[1].Entries[0]
		if !same(plain, guessed) {
			t.Fatalf("taken %+v, with a guess %+v", plain, guessed)
		}
		whole := plain.InlineBytes()%8 == 0
		right := guess != nil && plain.Code == gpuerr.None && plain.Op == OpLaunch && whole &&
			knownOf(plain).Words == guess.Words && slices.Equal(plain.Args, guess.Args)
		if right != (guessed.Known != nil) || right && guessed.Known != guess {
			t.Fatalf("%+v: known %v, guessed %+v", plain, guessed.Known, guess)
		}
		if right {
			hits++
		} else {
			misses++
		}
		if plain.Code == gpuerr.None && plain.Op == OpLaunch && len(seen) < 6 {
			seen = append(seen, knownOf(plain))
		}
		for i, s := range w.s {
			s.Publish([]Completion{{UserData: plain.UserData, Outcome: goldenCompletions[0].c.Outcome}})
			var out [1]Completion
			if n, err := w.c[i].Poll(out[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if hits < 200 || misses < 200 {
		t.Errorf("%d guesses were right and %d wrong: that tests little", hits, misses)
	}
}

// TestForget: a batch that was let go of leads to nothing of its owner's, whatever was taken
// into it before.
func TestForget(t *testing.T) {
	s, c := pair(t, 8, 1024)
	b := NewBatch(0)
	b.Forget() // before anything is taken
	e := LaunchEntry(1, 1, Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, 0)
	var k Known
	for _, n := range []int{1, 4, 2} {
		for range n {
			push(t, c, e, []Binding{{Buffer: 1, Len: 16}}, nil)
		}
		flush(t, c)
		if got, err := s.TakeMany(b, n); got != n || err != nil {
			t.Fatal(got, err)
		}
		if k.Words[0] != 0 && b.Entries[n-1].Known != &k {
			t.Fatal("it is not known")
		}
		k = *knownOf(&b.Entries[0])
		k.After, b.Guess = &k, &k
	}
	b.Forget()
	if b.Guess != nil || len(b.Entries) != 2 {
		t.Errorf("the guess is %p, %d entries are left", b.Guess, len(b.Entries))
	}
	for i, x := range b.Entries[:cap(b.Entries)] {
		if x.Known != nil {
			t.Errorf("entry %d is known", i)
		}
	}
}

// TestKnownGone: arguments that are compared where a page is gone end that ring and nothing
// else, wherever in them it begins.
func TestKnownGone(t *testing.T) {
	page := os.Getpagesize()
	bindings := []Binding{{Buffer: 1, Len: 16}, {Buffer: 2, Len: 16}}
	inline := make([]byte, 24) // so that some are compared one by one
	const words = 2*BindingBytes/8 + 3
	for before := range words {
		s, c := pair(t, 4, uint32(4*page))
		base := int(s.arena)
		hole := (base+page-1)/page*page + page // of the mapping
		e := LaunchEntry(1, 1, Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, 0)
		b := NewBatch(0)
		push(t, c, e, bindings, inline)
		flush(t, c)
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		k := knownOf(&b.Entries[0])
		b.Guess = k
		push(t, c, e, bindings, inline)
		slot := &c.view.sq[1]
		from, to := slot[6]&0xffffffff, uint64(hole-base-8*before)
		copy(c.view.args[to/8:][:words], c.view.args[from/8:][:words])
		slot[6] = slot[6]>>32<<32 | to
		flush(t, c)
		if err := unix.Mprotect(s.mapping[hole:hole+page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if n, err := s.TakeMany(b, 1); n != 0 || !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("%d words before the page: %d entries, %v", before, n, err)
		}
		if len(b.Entries) != 0 {
			t.Error("there are entries")
		}
		s.Close(gpuerr.Revoked)
	}
}
