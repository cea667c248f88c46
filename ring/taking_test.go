package ring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// whole is all that was taken, in order.
func (t *Taking) whole() (all []Completion) {
	for i, nanos := range t.Times[:t.OK] {
		all = append(all, Completion{UserData: t.User + uint64(i), Outcome: outcome.Success, DeviceNanos: nanos})
	}
	return append(all, t.Others[:t.Other]...)
}

// anyCompletion is one that a driver may write; most are ok.
func anyCompletion(r *rand.Rand) Completion {
	switch r.IntN(60) {
	case 0:
		return Completion{Outcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Offset: 8}}}
	case 1:
		return Completion{Outcome: outcome.Outcome{Kind: outcome.Cancelled}, Code: gpuerr.Quota, Available: 77}
	case 2:
		return Completion{Outcome: outcome.Success, DeviceNanos: 1<<48 + r.Uint64N(1000)} // does not fit a word
	case 3:
		return Completion{Outcome: outcome.Success, DeviceNanos: 1<<48 - 1}
	}
	return Completion{Outcome: outcome.Success, DeviceNanos: r.Uint64N(1000)}
}

// TestTakingAgainstPoll does the same to two rings, of which one has its completions taken as
// times where they are ok, and the other one by one: they are the same, and so is what is
// written, and what a driver is told that lies.
func TestTakingAgainstPoll(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(41, 42))
	ok, other, wrapped, behind := 0, 0, 0, 0
	lies := map[error]int{}
	for round := range 700 {
		entries := uint32(2) << (round % 5)
		l, plain := newLocal(t, entries), newLocal(t, entries)
		both := []*Local{l, plain}
		if round%4 > 0 { // anywhere, also over the end of a lap, and of all laps
			start := r.Uint64N(5000)
			for _, l := range both {
				startAt(l, start)
			}
		}
		user := r.Uint64N(3)
		lied := false
		for turn := 0; turn < 60; turn++ {
			for n := r.IntN(int(entries) + 1); n > 0 && l.Client.Free() > 0; n-- {
				for _, l := range both {
					push(t, l.Client, NopEntry(user), nil, nil)
				}
				if user++; round%7 == 0 && r.IntN(9) == 0 {
					user = r.Uint64()
				}
			}
			var done []Completion
			most := r.IntN(3 * int(entries))
			for i, l := range both {
				flush(t, l.Client)
				b := NewBatch(0)
				n, err := l.Server.TakeMany(b, most)
				if !lied { // else the client may be found out that took what was none
					require.NoError(t, err)
				}
				for i == 0 && len(done) < n {
					done = append(done, anyCompletion(r))
				}
				l.Server.Publish(done)
			}
			if round%3 == 0 && r.IntN(20) == 0 { // a lie, about some word
				lied = true
				at, word, flip := r.IntN(int(4*entries)), r.Uint64N(1<<20), r.IntN(2) == 0
				for _, l := range both {
					l.Corrupt(int(l.Client.cq)/8+at%int(l.Client.completions), func(old uint64) uint64 {
						if flip {
							return old ^ word
						}
						return old + 1 // the next lap
					})
				}
			}
			for range 1 + r.IntN(3) {
				to := Taking{Times: make([]uint64, r.IntN(40)), Others: make([]Completion, 1+r.IntN(40))}
				most := max(len(to.Times), len(to.Others))
				if lied || r.IntN(2) == 0 { // of a lie both are to see as much
					to.Others = make([]Completion, most)
				}
				wake, err := l.Client.poll(&to, false)
				require.False(t, wake)
				if len(to.Others) < most && to.any() {
					most = to.OK + to.Other
				}
				out := make([]Completion, most)
				n, plainErr := plain.Client.Poll(out)
				require.Equal(t, plainErr, err)
				require.Equal(t, append([]Completion(nil), out[:n]...), to.whole())
				require.True(t, bytes.Equal(plain.memory, l.memory))
				ok, other = ok+to.OK, other+to.Other
				if to.OK > 0 && to.Other > 0 {
					behind++
				}
				if taken := plain.Client.view.cqHead.Load(); to.OK > 0 && taken/uint64(l.Client.completions) != (taken-uint64(to.OK))/uint64(l.Client.completions) {
					wrapped++
				}
				if err != nil {
					lies[err]++
					break
				}
			}
			if lied && plain.Client.Err() != nil {
				break
			}
		}
	}
	if ok < 30_000 || other < 3_000 || wrapped < 500 || behind < 300 || lies[errDriverAhead] < 10 || lies[errDriverLap] < 10 || lies[errBadCompletion] < 10 {
		t.Errorf("%d ok, %d others, %d behind those, %d over the end, lies %v: that tests little", ok, other, behind, wrapped, lies)
	}
}

// startAt has both ends of a new ring begin at a position, as if all before had been.
//
// +checklocksignore: nobody else has them
func startAt(l *Local, pos uint64) {
	c, s := l.Client, l.Server
	c.pushed, c.seenHead, c.taken = pos, pos, pos
	c.submitted.Store(pos)
	c.arena.reset(pos)
	c.users.first = -pos
	s.taken, s.consumed, s.completed, s.published = pos, pos, pos, pos
	s.seenTail, s.seenHead = pos, pos
	c.view.sqTail.Store(pos)
	c.view.sqHead.Store(pos)
	c.view.cqHead.Store(pos)
	for i := range uint64(c.completions) { // the lap before
		at := pos + i
		c.view.cq[at%uint64(c.completions)] = uint64(lapOf(at, c.completions) - 1)
	}
}

// TestWaitTaking: it waits, is told of ends, and needs room.
func TestWaitTaking(t *testing.T) {
	s, c := pair(t, 4, 64)
	require.ErrorIs(t, c.WaitTaking(t.Context(), &Taking{Times: make([]uint64, 3)}), gpuerr.Invalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	to := Taking{Times: make([]uint64, 3), Others: make([]Completion, 1)}
	if err := c.WaitTaking(ended, &to); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waited := make(chan error)
	go func() { waited <- c.WaitTaking(testContext(t), &to) }()
	push(t, c, NopEntry(9), nil, nil)
	flush(t, c)
	take(t, s)
	s.Publish([]Completion{{Outcome: outcome.Success, DeviceNanos: 5}})
	require.NoError(t, <-waited)
	require.Equal(t, []Completion{{UserData: 9, Outcome: outcome.Success, DeviceNanos: 5}}, to.whole())
	require.Zero(t, testing.AllocsPerRun(100, func() {
		push(t, c, NopEntry(10), nil, nil)
		flush(t, c)
		take(t, s)
		s.Consumed()
		s.Complete(&Completion{Outcome: outcome.Success})
		s.Flush()
		if err := c.WaitTaking(ended, &to); err != nil {
			t.Error(err)
		}
	}))
	s.Close(gpuerr.Revoked)
	require.ErrorIs(t, c.WaitTaking(testContext(t), &to), gpuerr.Revoked)
	require.Empty(t, to.whole())
}

// TestLinesOfClient: what one goroutine writes that pushes, and another that polls, share no
// line, as long as a client begins with one.
func TestLinesOfClient(t *testing.T) {
	line := func(field string) uintptr {
		f, ok := reflect.TypeFor[Client]().FieldByName(field)
		require.True(t, ok, field)
		return f.Offset / lineBytes
	}
	require.Equal(t, line("users"), line("pushErr"))
	for _, polls := range []string{"pollMu", "taken", "pollErr", "patience"} {
		require.Equal(t, line("pollMu"), line(polls))
		for _, pushes := range []string{"submitted", "pushMu", "users", "pushed", "seenHead", "arena", "keeper"} {
			require.NotEqual(t, line(pushes), line(polls), "%s and %s", pushes, polls)
		}
	}
}
