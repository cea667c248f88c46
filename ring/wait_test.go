package ring

import (
	"runtime"
	"testing"

	"capgpu/outcome"
)

// TestPatience: looking that pays goes on and grows, looking in vain becomes rare, and
// sleeps that looking would not have shortened change nothing.
func TestPatience(t *testing.T) {
	usual, long := spinsFor(usualSpin), spinsFor(longSpin)
	var p patience
	expect := func(want int, when string) {
		t.Helper()
		if got := p.looks(); got != want {
			t.Errorf("%s it looks %d times, want %d", when, got, want)
		}
	}
	expect(usual, "at first")
	for range manyFound {
		p.lookedFor(true)
	}
	expect(long, "when it always finds something")
	// In vain: the next 1, 2, 4… waits sleep at once.
	asleep := 0
	for k := 1; k <= 8*mostVain; k *= 2 {
		p.lookedFor(false)
		for range min(k, mostVain) {
			expect(0, "when it was in vain")
			p.slept(longSpin)
			p.slept(longSpin)
			expect(0, "after long sleeps")
			p.slept(usualSpin)
			asleep++
		}
		expect(usual, "then")
	}
	if asleep < 3*mostVain {
		t.Errorf("%d waits slept at once", asleep)
	}
	p.lookedFor(true)
	p.lookedFor(false)
	p.slept(usualSpin)
	expect(usual, "when looking paid in between")
	// A completion that comes a little later than the usual look ends is looked for longer.
	p.lookedFor(false)
	p.slept(usualSpin + 1)
	expect(0, "when it was in vain again")
	p.slept(usualSpin + 1)
	expect(long, "after sleeps that a long look would have saved")
	p.lookedFor(true)
	expect(long, "when that paid")
	p.lookedFor(false)
	p.slept(usualSpin)
	expect(usual, "when it no longer does")
}

// TestWaitLooks: Wait notes what it found by looking, and that it looked in vain.
func TestWaitLooks(t *testing.T) {
	s, c := pair(t, 4, 64)
	b, out := NewBatch(0), make([]Completion, 4)
	answer := func() {
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
			t.Error(n, err)
		}
		s.CompleteMany([]Completion{{Outcome: outcome.Success}})
		s.Flush()
	}
	wait := func() {
		t.Helper()
		if n, err := c.Wait(testContext(t), out); n != 1 || err != nil {
			t.Fatalf("Wait() = %d, %v", n, err)
		}
	}
	asleep := func() uint8 {
		c.pollMu.Lock()
		defer c.pollMu.Unlock()
		return c.patience.asleep
	}
	// The driver answers when the client has armed its flag: looking was in vain.
	push(t, c, NopEntry(0), nil, nil)
	flush(t, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c.view.cqWait.Load() == awake {
			runtime.Gosched()
		}
		answer()
	}()
	wait()
	<-done
	if asleep() != 0 && asleep() != 1 { // 0: the sleep was short, and counted
		t.Errorf("the next %d waits sleep at once", asleep())
	}
	c.pollMu.Lock()
	vain := c.patience.vain
	c.patience = patience{}
	c.pollMu.Unlock()
	if vain != 1 {
		t.Errorf("%d after a look in vain", vain)
	}
	c.done.Drain() // what woke that wait
	// It is there: nothing is noted, nobody is asked.
	push(t, c, NopEntry(0), nil, nil)
	flush(t, c)
	answer()
	wait()
	if c.view.cqWait.Load() != awake || wakesPending(t, fdOf(c.done)) != 0 {
		t.Error("a wait that found something asked to be woken")
	}
}
