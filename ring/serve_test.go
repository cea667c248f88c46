package ring

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// servant has a function for each method of Servant; nil does the obvious.
type servant struct {
	served func(named []uint8) []uint64
	told   func() bool
	goes   func() bool
}

func (v *servant) Served(named []uint8) []uint64 { return v.served(named) }
func (v *servant) Told() bool                    { return v.told == nil || v.told() }
func (v *servant) Goes() bool                    { return v.goes == nil || v.goes() }

// keptFill is an entry that goes into a kept slot, of as many as there are patterns.
func keptFill(user uint64, pattern uint32) Entry { return FillEntry(user, 1, 0, 4, pattern, 0) }

// learn keeps what of a batch was taken of kept slots.
func learn(b *Batch, slots uint32) {
	if b.Kept == nil {
		b.Kept = make([]*Known, slots)
	}
	for i := range b.Entries {
		if t := &b.Entries[i]; t.Known == nil && t.Slot >= 0 && t.Code == gpuerr.None {
			k := &Known{} // another: this one may be in the batch
			k.Keep(t)
			b.Kept[t.Slot] = k
		}
	}
}

// pairKnowing is a pair whose batch knows one entry, which came and went.
func pairKnowing(t *testing.T, entries uint32) (*Server, *Client, *Batch) {
	t.Helper()
	s, c := pair(t, entries, 64)
	b := NewBatch(0)
	push(t, c, keptFill(0, 1), nil, nil)
	flush(t, c)
	if n, err := s.Serve(b, 64, 0, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	learn(b, s.slots)
	s.PublishOK(ones(1))
	if n, err := c.Poll(make([]Completion, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	return s, c, b
}

// ones are so many device times.
func ones(n int) []uint64 { return slices.Repeat([]uint64{1}, n) }

func TestServe(t *testing.T) {
	leakcheck.Check(t)
	s, c, b := pairKnowing(t, 64)
	batches, bell := []int{}, 0
	v := &servant{}
	v.served = func(named []uint8) []uint64 {
		batches = append(batches, len(named))
		return ones(len(named))
	}
	out := make([]Completion, 64)
	expect := func(most, spins, want int, wantErr error) {
		t.Helper()
		if n, err := s.Serve(b, most, spins, v); n != want || !errors.Is(err, wantErr) {
			t.Fatalf("Serve(%d, %d) = %d, %v; want %d, %v", most, spins, n, err, want, wantErr)
		}
	}
	collect := func(want int) {
		t.Helper()
		if n, err := c.Poll(out); n != want || err != nil {
			t.Fatalf("Poll() = %d, %v; want %d", n, err, want)
		}
	}
	some := func(n int) {
		for i := range n {
			push(t, c, keptFill(uint64(i), 1), nil, nil)
		}
		flush(t, c)
	}
	expect(64, 100, 0, nil)
	if len(batches) != 0 {
		t.Fatal("nothing was there")
	}
	some(5)
	expect(64, 0, 0, nil)
	collect(5)
	some(5)
	expect(2, 1, 0, nil) // and goes on with what is left
	collect(5)
	if !slices.Equal(batches, []int{5, 2, 2, 1}) {
		t.Fatal(batches)
	}
	// What comes while it looks is served as well.
	v.goes = func() bool {
		if bell++; bell <= 3 {
			some(bell)
		}
		return true
	}
	batches = nil
	expect(64, 10, 0, nil)
	collect(6)
	if !slices.Equal(batches, []int{1, 2, 3}) {
		t.Fatal(batches)
	}
	// Goes and Told end it.
	looks := 0
	v.goes = func() bool { looks++; return looks < 5 }
	expect(64, 1<<60, 0, nil)
	if looks != 5 {
		t.Fatal(looks)
	}
	v.told = func() bool { return false }
	some(3)
	expect(1, 1<<60, 0, nil)
	collect(1)
	v.told = nil
	// What the servant leaves is the caller's, all of it.
	v.served = func([]uint8) []uint64 { return nil }
	expect(64, 0, 2, nil)
	if len(b.Entries) != 2 || b.Entries[1].Known == nil || b.Entries[1].Known != b.Kept[b.Entries[1].Slot] || b.Entries[1].Op != OpFill {
		t.Fatal(b.Entries)
	}
	v.served = func(named []uint8) []uint64 { return ones(len(named) - 1) }
	some(4)
	expect(64, 0, 4, nil)
	collect(0)
	s.PublishOK(ones(6))
	collect(6)
	// What is not known is, too, behind what is; and so is what has another version.
	v.served = func(named []uint8) []uint64 { return ones(len(named)) }
	some(3)
	push(t, c, NopEntry(9), nil, nil)
	push(t, c, keptFill(10, 2), nil, nil)
	flush(t, c)
	expect(64, 0, 2, nil)
	if len(b.Entries) != 2 || b.Entries[0].Op != OpNop || b.Entries[1].Known != nil || b.Entries[1].B != 2 {
		t.Fatal(b.Entries)
	}
	collect(3)
	s.PublishOK(ones(2))
	collect(2)
	b.Kept[0].Version++
	some(1)
	expect(64, 0, 1, nil)
	if b.Entries[0].Known != nil || b.Entries[0].Op != OpFill {
		t.Fatal(b.Entries)
	}
	s.PublishOK(ones(1))
	collect(1)
	s.Close(gpuerr.Revoked)
	expect(64, 1<<60, 0, gpuerr.Revoked)
}

// Serve looks at cqHead when completions are short, and only then; a client that lies there,
// or at sqTail, ends its ring.
func TestServeShortOfCompletions(t *testing.T) {
	s, c, b := pairKnowing(t, 2)
	done := 0
	v := &servant{served: func(named []uint8) []uint64 { done += len(named); return ones(len(named)) }}
	serve := func() {
		t.Helper()
		if n, err := s.Serve(b, 64, 3, v); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range uint64(3) {
		push(t, c, keptFill(i, 1), nil, nil)
		push(t, c, keptFill(i, 1), nil, nil)
		flush(t, c)
		serve()
	}
	if done != 4 { // as many as there are completions
		t.Fatal(done)
	}
	if n, err := c.Poll(make([]Completion, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if serve(); done != 5 {
		t.Fatal(done)
	}
	c.view.cqHead.Store(7)
	if n, err := s.Serve(b, 64, 3, v); n != 0 || !errors.Is(err, gpuerr.Protocol) || done != 5 {
		t.Fatal(n, err, done)
	}
	s, c = pair(t, 2, 64)
	c.view.sqTail.Store(3)
	if n, err := s.Serve(b, 64, 3, v); n != 0 || !errors.Is(err, gpuerr.Protocol) || done != 5 {
		t.Fatal(n, err, done)
	}
}

// Close ends a Serve that looks, from another goroutine, and it goes back to its caller with
// a client to wake that has gone to sleep.
func TestServeEnds(t *testing.T) {
	leakcheck.Check(t)
	s, c, b := pairKnowing(t, 4)
	v := &servant{served: func(named []uint8) []uint64 { return ones(len(named)) }}
	spun := make(chan error)
	go func() {
		for { // it ends each time that the client slept
			if _, err := s.Serve(b, 64, 1<<60, v); err != nil {
				spun <- err
				return
			}
		}
	}()
	out := make([]Completion, 4)
	for i := range uint64(200) {
		push(t, c, keptFill(i, 1), nil, nil)
		flush(t, c)
		if i%2 == 0 {
			c.pollMu.Lock()
			c.patience.asleep = 2 // it looks for nothing
			c.pollMu.Unlock()
		}
		if n, err := c.Wait(context.Background(), out); n != 1 || err != nil || out[0].UserData != i {
			t.Fatal(n, err, out[0])
		}
	}
	s.Close(gpuerr.Revoked)
	if err := <-spun; !errors.Is(err, gpuerr.Revoked) {
		t.Fatal(err)
	}
}

// TestServeBeside: a client in another goroutine, that comes with what it likes when it likes,
// has each entry ended once, in order, whoever of the two ways serves it.
func TestServeBeside(t *testing.T) {
	leakcheck.Check(t)
	const total = 20_000
	for _, entries := range []uint32{2, 64} {
		s, c := pair(t, entries, 64)
		var wg sync.WaitGroup
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(entries)))
			out := make([]Completion, 64)
			pushed, taken := uint64(0), uint64(0)
			for taken < total {
				for n := rng.IntN(2 * int(entries)); n > 0 && pushed < total; n-- {
					e := keptFill(pushed, uint32(rng.IntN(3)*rng.IntN(100)))
					if rng.IntN(16) == 0 {
						e = NopEntry(pushed)
					}
					if err := c.Push(&e, nil, nil); err != nil {
						break
					}
					pushed++
				}
				flush(t, c)
				if taken == pushed {
					continue
				}
				n, err := c.Wait(context.Background(), out[:1+rng.IntN(64)])
				if err != nil {
					t.Error(err)
					return
				}
				for i := range out[:n] {
					if x := &out[i]; x.UserData != taken || x.Outcome != outcome.Success || x.DeviceNanos != taken%7 {
						t.Errorf("completion %d is %+v", taken, x)
						return
					}
					taken++
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		rng := rand.New(rand.NewPCG(2, uint64(entries)))
		b, at := NewBatch(0), uint64(0)
		times := func(n int) (nanos []uint64) {
			for range n {
				nanos = append(nanos, at%7)
				at++
			}
			return nanos
		}
		v := &servant{
			served: func(named []uint8) []uint64 {
				if rng.IntN(8) == 0 {
					return nil
				}
				return times(len(named))
			},
			told: func() bool { return rng.IntN(8) != 0 },
			goes: func() bool { return rng.IntN(64) != 0 },
		}
		for at < total {
			n, err := s.Serve(b, 1+rng.IntN(64), rng.IntN(100), v)
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				learn(b, s.slots)
				s.PublishOK(times(n))
			} else if rng.IntN(4) == 0 && at < total {
				if err := s.WaitWork(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		wg.Wait()
	}
}

// A word of a position that cannot be one ends the ring, behind what was known and right before
// it, whichever way it is taken.
func TestServeBadPlaces(t *testing.T) {
	for name, change := range map[string]func(place uint64) uint64{
		"another position":        func(p uint64) uint64 { return p ^ 1 },
		"a bit that must be zero": func(p uint64) uint64 { return p | 1<<placeZeroShift },
		"no such slot":            func(p uint64) uint64 { return p | 0xff<<placeSlotShift },
		"a version without a slot": func(p uint64) uint64 {
			return p&^(0xff<<placeSlotShift) | 1<<placeVersionShift
		},
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c, b := pairKnowing(t, 64)
			for i := range uint64(4) {
				push(t, c, keptFill(i, 1), nil, nil)
			}
			const pushed = 5 // one by pairKnowing
			at := c.view.place(pushed - 2)
			*at = change(*at)
			flush(t, c)
			done := 0
			v := &servant{served: func(named []uint8) []uint64 { done += len(named); return ones(len(named)) }}
			if n, err := s.Serve(b, 64, 0, v); n != 0 || !errors.Is(err, gpuerr.Protocol) || done != 2 {
				t.Fatal(n, err, done)
			}
			if n, err := c.Poll(make([]Completion, 8)); n != 2 || err != nil {
				t.Fatal(n, err)
			}
		})
	}
}
