package gpu

import (
	"context"
	"sort"
	"sync"

	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
)

// fencePoints is how many ended points a fence remembers one by one. For older
// ones it remembers the worst of them all, so a late question about one of them
// may be answered worse than it was, but never better.
const fencePoints = 32

// point is one value of a timeline that is promised or has ended.
type point struct {
	value uint64
	ended bool
	how   outcome.Outcome
}

// fence is a 64-bit timeline. A point is promised when its signal is queued,
// ends once its work has ended, and is reached when every point promised before
// it is reached too: work on two queues that signal one fence cannot overtake.
//
//	promise(v) ──► promised ──end(v, how)──► ended ──all before ended──► reached
//
// A wait for v is over when a point of at least v is reached, and has that
// point's outcome.
type fence struct {
	session *Session
	h       Handle
	node    *revoke.Node
	charge  ledger.Receipt

	mu sync.Mutex
	// +checklocks:mu
	initial uint64
	// +checklocks:mu
	reached uint64
	// +checklocks:mu
	promised uint64
	// +checklocks:mu
	open []point // promised and not reached, in order
	// +checklocks:mu
	past [fencePoints]point // the last reached, a ring
	// +checklocks:mu
	pastCount uint64 // reached so far in all
	// +checklocks:mu
	forgotten point // the last reached that is no longer in past, with the worst outcome until it
	// +checklocks:mu
	waiters []*waiter
	// +checklocks:mu
	dead outcome.Outcome // how everything not reached ends, once the fence is gone
}

// waiter waits for one value. notify is called under the fence's lock, once, and does not
// block.
type waiter struct {
	value  uint64
	notify func()
}

// CreateFence makes a fence that stands at initial.
func (s *Session) CreateFence(initial uint64) (Handle, error) {
	if err := s.enterToWork(); err != nil {
		return 0, err
	}
	defer s.node.Leave()
	f := &fence{session: s, initial: initial, reached: initial, promised: initial}
	var err error
	if f.charge, err = s.reserve(context.Background(), ledger.Fences, 1); err != nil {
		return 0, err
	}
	f.charge.Commit()
	ops := revoke.Ops{Quiesce: func() { f.die(outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed}) }, Release: f.charge.Release}
	if f.node, err = s.node.NewChild("fence", ops); err != nil {
		f.charge.Release()
		return 0, s.closedError(err)
	}
	if err := s.handles.Add(f, func(h Handle) { f.h = h }); err != nil {
		f.node.CloseAsync(err) // not Close: we are inside the session
		return 0, err
	}
	return f.h, nil
}

// DestroyFence ends a fence: points not reached end revoked.
func (s *Session) DestroyFence(h Handle) error {
	f, err := remove[fence](s, h)
	if err != nil {
		return err
	}
	return f.node.Close(errDestroyed)
}

// FenceState says where a fence stands; the outcome is that of the last point
// reached.
func (s *Session) FenceState(h Handle) (FenceState, error) {
	if err := s.enter(); err != nil {
		return FenceState{}, err
	}
	defer s.node.Leave()
	f, err := handles.Lookup[fence](s.handles, h)
	if err != nil {
		return FenceState{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stateLocked(f.outcomeLocked(f.reached)), nil
}

// WaitFence waits until a point of at least value is reached. When ctx ends
// first the outcome is pending and the error nil; when the fence, its session or
// the device ends first it is revoked or deviceLost.
func (s *Session) WaitFence(ctx context.Context, h Handle, value uint64) (FenceState, error) {
	if err := s.enter(); err != nil {
		return FenceState{}, err
	}
	f, err := handles.Lookup[fence](s.handles, h)
	s.node.Leave() // a waiter does not hold up a close
	if err != nil {
		return FenceState{}, err
	}
	wake := make(chan struct{}, 1)
	w := &waiter{value: value, notify: func() { nudge(wake) }}
	if how, over := f.wait(w); over {
		return f.state(how), nil
	}
	defer f.forget(w)
	how := outcome.Outcome{}
	select {
	case <-wake:
	case <-ctx.Done():
	case <-s.node.Done(): // a fence that is destroyed wakes its waiters
		how = outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed}
	case <-s.dev.lost:
		how = lostOutcome
	}
	if ended, over := f.look(value); over { // reached after all: the truth is better known
		how = ended
	}
	return f.state(how), nil
}

// SignalFence reaches value now, with outcome ok, once all points promised
// before are reached.
func (s *Session) SignalFence(h Handle, value uint64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.node.Leave()
	f, err := handles.Lookup[fence](s.handles, h)
	if err != nil {
		return err
	}
	if err := f.promise(value); err != nil {
		return err
	}
	f.end(value, outcome.Success)
	return nil
}

var (
	errFenceValue = gpuerr.New(gpuerr.Invalid, "value must be more than the last value promised; see FenceState")
	errFenceOpen  = gpuerr.New(gpuerr.QueueFull, "too many points are promised and not reached; wait for some")
)

// maxOpenPoints bounds what a client can make the core remember, at the price of
// one fence, with signals that wait for an earlier one.
const maxOpenPoints = 1024

// keptPoints is how much room for open points a fence without any keeps.
const keptPoints = 64

// promise queues a point. The caller must end it, once.
func (f *fence) promise(value uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.dead.Kind != outcome.Pending:
		return handles.ErrStale
	case value <= f.promised:
		return errFenceValue
	case len(f.open) >= maxOpenPoints:
		return errFenceOpen
	}
	f.promised = value
	f.open = append(f.open, point{value: value})
	return nil
}

// end ends a promised point, and reaches it and those behind it if it was the
// first. It is false if the fence died meanwhile, and all its points with it.
func (f *fence) end(value uint64, how outcome.Outcome) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.open
	i := sort.Search(len(open), func(i int) bool { return open[i].value >= value })
	if i == len(f.open) || f.open[i].value != value || f.open[i].ended {
		return false
	}
	f.open[i].ended, f.open[i].how = true, how
	n := 0
	for n < len(f.open) && f.open[n].ended {
		f.reachLocked(f.open[n])
		n++
	}
	if n > 0 {
		f.open = f.open[:copy(f.open, f.open[n:])]
		if len(f.open) == 0 && cap(f.open) > keptPoints {
			f.open = nil
		}
		f.wakeLocked()
	}
	return true
}

// +checklocks:f.mu
func (f *fence) reachLocked(p point) {
	slot := &f.past[f.pastCount%fencePoints]
	if f.pastCount >= fencePoints {
		f.forgotten = point{value: slot.value, how: outcome.Worse(f.forgotten.how, slot.how)}
	}
	*slot = p
	f.pastCount++
	f.reached = p.value
}

// +checklocks:f.mu
func (f *fence) wakeLocked() {
	kept := f.waiters[:0]
	for _, w := range f.waiters {
		if w.value <= f.reached || f.dead.Kind != outcome.Pending {
			w.notify()
		} else {
			kept = append(kept, w)
		}
	}
	clear(f.waiters[len(kept):])
	f.waiters = kept
}

// die ends every point that is not reached.
func (f *fence) die(how outcome.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead.Kind == outcome.Pending {
		f.dead = how
		f.open = nil
	}
	f.wakeLocked()
}

// wait registers w unless the wait is over already.
func (f *fence) wait(w *waiter) (outcome.Outcome, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how, over := f.lookLocked(w.value)
	if !over {
		f.waiters = append(f.waiters, w)
	}
	return how, over
}

func (f *fence) forget(w *waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, other := range f.waiters {
		if other == w {
			last := len(f.waiters) - 1
			f.waiters[i], f.waiters[last] = f.waiters[last], nil
			f.waiters = f.waiters[:last]
			return
		}
	}
}

// look says whether a wait for value is over, and how.
func (f *fence) look(value uint64) (outcome.Outcome, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookLocked(value)
}

// +checklocks:f.mu
func (f *fence) lookLocked(value uint64) (outcome.Outcome, bool) {
	if value <= f.reached {
		return f.outcomeLocked(value), true
	}
	return f.dead, f.dead.Kind != outcome.Pending
}

// outcomeLocked is the outcome of the first point of at least value; value must
// be reached.
//
// +checklocks:f.mu
func (f *fence) outcomeLocked(value uint64) outcome.Outcome {
	if value <= f.initial {
		return outcome.Success
	}
	kept := min(f.pastCount, fencePoints)
	if f.pastCount > fencePoints && value <= f.forgotten.value {
		return f.forgotten.how
	}
	for i := f.pastCount - kept; i < f.pastCount; i++ {
		if p := f.past[i%fencePoints]; p.value >= value {
			return p.how
		}
	}
	return f.dead // cannot be: reached is the value of the last point
}

func (f *fence) state(how outcome.Outcome) FenceState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stateLocked(how)
}

// +checklocks:f.mu
func (f *fence) stateLocked(how outcome.Outcome) FenceState {
	return FenceState{Reached: f.reached, Promised: f.promised, Outcome: how}
}

// nudge leaves a token in a channel of capacity 1.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
