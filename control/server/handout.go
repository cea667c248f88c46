package server

import (
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpu"
	"capgpu/gpuerr"
)

// announced is the set of objects that the peer may close: those whose
// descriptors were duplicated for it.
//
// The core owns the descriptors of an object and closes them with it, and a
// number that was closed may be another tenant's memory a moment later. A peer
// that guesses the handle of an object that is being made could have it closed
// between its making and the duplication. So a handle is unknown here until the
// duplicates exist, and that a whole session ends meanwhile is looked at after.
type announced struct {
	mu sync.Mutex
	// +checklocks:mu
	handles map[gpu.Handle]struct{}
}

// announce duplicates the descriptors of a fresh object for the peer.
func (s *session) announce(a *announced, h gpu.Handle, fds ...int) ([]int, error) {
	dups := make([]int, 0, len(fds))
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(dups)
			return nil, gpuerr.New(gpuerr.IO, "the driver has no free descriptor; close other objects and try again")
		}
		dups = append(dups, dup)
	}
	// The core refuses (Err) before it closes anything: with no refusal now, the
	// descriptors were the object's when they were duplicated.
	if err := s.core.Err(); err != nil {
		closeAll(dups)
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handles == nil {
		a.handles = map[gpu.Handle]struct{}{}
	}
	a.handles[h] = struct{}{}
	return dups, nil
}

// withdraw takes a handle out of the set; the caller closes the object.
func (a *announced) withdraw(h gpu.Handle, what string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.handles[h]; !ok {
		return gpuerr.New(gpuerr.Stale, "handle: this session has no such %s, or it is closed", what)
	}
	delete(a.handles, h)
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
