package ring

import (
	"context"
	"sync"
	"time"

	"capgpu/gpuerr"
)

// LocalOptions are how the wakes of a local ring behave; the zero value delivers each
// at once.
type LocalOptions struct {
	// Late says how long the next wake is on its way; negative: it never arrives. It is
	// called by whoever wakes, one call at a time for each direction. nil: no time.
	Late func(toDriver bool) time.Duration
}

// Local is both ends of a ring within one process: the same memory, the same protocol,
// and wakes that are channels instead of pipes. So it works on the virtual time of
// testing/synctest. Neither end looks before it sleeps.
type Local struct {
	Server *Server
	Client *Client
	memory []byte
}

// NewLocal makes a ring with both its ends.
func NewLocal(cfg Config, o LocalOptions) (*Local, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := layoutOf(cfg)
	memory := make([]byte, l.bytes)
	storeHeader(memory, l.header())
	v, err := viewOf(memory, l)
	if err != nil {
		return nil, err
	}
	work, done := newLocalWake(o.Late, true), newLocalWake(o.Late, false)
	s := &Server{layout: l, mapping: memory, view: v, work: work, clientWork: peerEnd{work}, done: localSender{done}, clientDone: peerEnd{done}}
	c := &Client{layout: l, mapping: memory, view: v, wake: localSender{work}, done: done}
	c.begin()
	c.pollMu.Lock()
	c.patience.sleepy = true
	c.pollMu.Unlock()
	return &Local{Server: s, Client: c, memory: memory}, nil
}

// Corrupt writes a word of the shared memory, as a peer may that does not keep to the
// protocol: its index is counted in eight bytes.
func (l *Local) Corrupt(word int, change func(old uint64) uint64) {
	corrupt(l.memory, word, change)
}

// Wake wakes the driver, as a client may that has published nothing.
func (l *Local) Wake() { _ = l.Client.signal() }

// Cut is the death of the driver's process: its end of the ring does nothing any more,
// and the client learns that it is gone.
func (l *Local) Cut() {
	l.Server.gone.Store(true)
	l.Server.done.Close()
}

// Words of the header and of the parts, for Corrupt.
const (
	WordSQTail = offSQTail / 8
	WordCQHead = offCQHead / 8
)

// WordsOfEntry is where the words of the entry at a position begin, and how many.
func (l *Local) WordsOfEntry(pos uint64) (first, n int) {
	return (int(l.Server.sq) + int(pos%uint64(l.Server.Entries))*EntryBytes) / 8, EntryBytes / 8
}

// WordOfPlace is where the place of the entry at a position is.
func (l *Local) WordOfPlace(pos uint64) int {
	return (int(l.Server.places) + int(pos%uint64(l.Server.Entries))*WordBytes) / 8
}

// WordsOfKept is where the words of all kept slots begin, and how many.
func (l *Local) WordsOfKept() (first, n int) {
	return int(l.Server.kept) / 8, int(l.Server.slots) * keptWords
}

// Forget has the client write its kept slots anew, as one has to that has overwritten them.
func (l *Local) Forget() {
	c := l.Client
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	for i := range c.keeper.said {
		c.keeper.said[i][0] = ^uint64(0)
	}
}

// WordsOfArena is where the arguments lie.
func (l *Local) WordsOfArena() (first, n int) {
	return int(l.Server.arena) / 8, int(l.Server.ArgBytes) / 8
}

// localWake is a wake pipe without a pipe: wakes that nobody waited for count as one.
type localWake struct {
	late     func(toDriver bool) time.Duration
	toDriver bool
	pending  chan struct{} // capacity 1
	closed   chan struct{} // the receiver's end
	gone     chan struct{} // the sender's end
	closing  sync.Once
	leaving  sync.Once
}

func newLocalWake(late func(bool) time.Duration, toDriver bool) *localWake {
	return &localWake{late: late, toDriver: toDriver, pending: make(chan struct{}, 1), closed: make(chan struct{}), gone: make(chan struct{})}
}

// Wait implements receiver.
func (w *localWake) Wait(ctx context.Context) error {
	select { // what came counts before any end
	case <-w.closed:
		return errLocalClosed
	case <-w.pending:
		return nil
	default:
	}
	select {
	case <-w.closed:
		return errLocalClosed
	case <-w.pending:
		return nil
	case <-w.gone:
		return errLocalGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain implements receiver: Wait leaves nothing.
func (*localWake) Drain() {}

// Err implements receiver.
func (w *localWake) Err() error {
	select {
	case <-w.closed:
		return errLocalClosed
	case <-w.gone:
		return errLocalGone
	default:
		return nil
	}
}

// DupFD implements receiver.
func (w *localWake) DupFD() (int, error) { return -1, errLocalFD }

// Close implements receiver.
func (w *localWake) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

func (w *localWake) arrive() {
	select {
	case w.pending <- struct{}{}:
	default:
	}
}

// localSender is the other end of a localWake.
type localSender struct{ w *localWake }

// Signal implements sender.
func (s localSender) Signal() error {
	select {
	case <-s.w.gone:
		return errLocalClosed
	case <-s.w.closed:
		return errLocalGone
	default:
	}
	late := time.Duration(0)
	if s.w.late != nil {
		late = s.w.late(s.w.toDriver)
	}
	switch {
	case late == 0:
		s.w.arrive()
	case late > 0:
		time.AfterFunc(late, s.w.arrive)
	}
	return nil
}

// DupFD implements sender.
func (s localSender) DupFD() (int, error) { return -1, errLocalFD }

// Close implements sender.
func (s localSender) Close() error {
	s.w.leaving.Do(func() { close(s.w.gone) })
	return nil
}

// peerEnd stands for the client's ends, which a server of a local ring does not keep.
type peerEnd struct{ *localWake }

// Signal implements sender.
func (peerEnd) Signal() error { return nil }

// Close implements sender and receiver.
func (peerEnd) Close() error { return nil }

var (
	errLocalClosed = gpuerr.New(gpuerr.Closed, "this end of the wake is closed")
	errLocalGone   = gpuerr.New(gpuerr.Disconnected, "the other end of the wake is closed")
	errLocalFD     = gpuerr.New(gpuerr.Unimplemented, "a local ring has no descriptors")
)
