package shm

import (
	"sync"
)

// receiverFD is a descriptor that is put into the runtime's poller when it is first waited
// for.
type receiverFD struct {
	mu sync.RWMutex
	// +checklocks:mu
	fd int // -1 once closed, or in the poller
	// +checklocks:mu
	p *pollable // nil: it is not in the poller
}

// polled puts the descriptor into the poller, unless it is there.
func (r *receiverFD) polled() (*pollable, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.p != nil:
		return r.p, nil
	case r.fd < 0:
		return nil, errEventClosed
	}
	p, err := newPollable(r.fd, "wake pipe")
	r.fd = -1 // it is the poller's, or closed
	r.p = p
	return p, err
}

// control calls f with the descriptor, which is not closed meanwhile.
func (r *receiverFD) control(f func(fd uintptr)) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.p != nil:
		return r.p.raw.Control(f)
	case r.fd < 0:
		return errEventClosed
	}
	f(uintptr(r.fd))
	return nil
}

// number is -1 once the descriptor is closed.
func (r *receiverFD) number() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.p != nil {
		return int(r.p.fd.Load())
	}
	return r.fd
}

func (r *receiverFD) dup() (int, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	switch {
	case r.p != nil:
		return r.p.dup()
	case r.fd < 0:
		return -1, errEventClosed
	}
	return dupFD(r.fd)
}

func (r *receiverFD) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.p != nil {
		return r.p.close()
	}
	if r.fd >= 0 {
		closeFD(r.fd)
		r.fd = -1
	}
	return nil
}
