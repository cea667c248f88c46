package ring

import (
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// State is where a Server stands between two entries: what its successor in another
// process needs, besides the descriptors, to go on where it has stopped.
type State struct {
	Config
	Taken     uint64 // entries copied out of the ring
	Completed uint64 // entries completed, all of them published
	SeenHead  uint64 // completions that the client was seen to have taken
}

// Export tells where the ring stands, and duplicates what its successor needs, which the
// caller owns: the memory, the end of the submission pipe that the driver sleeps on, the
// end of the completion pipe that wakes the client. Nobody takes from the ring or
// completes meanwhile, nor until it is known which of the two goes on. gpuerr.Busy for a
// ring that its client has not got yet, or that has ended.
//
// A successor of another Version cannot go on with the ring: its owner says so before.
func (s *Server) Export() (st State, ring, work, done int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil || s.gone.Load() || s.closed:
		return State{}, -1, -1, -1, gpuerr.New(gpuerr.Busy, "a queue is ending")
	case !s.handedOut || s.completed != s.published:
		return State{}, -1, -1, -1, gpuerr.New(gpuerr.Busy, "a queue is between two steps")
	}
	if ring, err = s.mem.DupFD(); err != nil {
		return State{}, -1, -1, -1, err
	}
	if work, err = s.work.DupFD(); err != nil {
		unix.Close(ring)
		return State{}, -1, -1, -1, err
	}
	if done, err = s.done.DupFD(); err != nil {
		unix.Close(ring)
		unix.Close(work)
		return State{}, -1, -1, -1, err
	}
	return State{Config: s.layout.Config, Taken: s.taken, Completed: s.completed, SeenHead: s.seenHead}, ring, work, done, nil
}

// Restore makes the Server that goes on where another has stopped. It owns the
// descriptors, also when it fails. It writes nothing to the ring: until it is used the
// other may go on after all.
func Restore(st State, ring, work, done int) (_ *Server, err error) {
	s := &Server{
		layout: layoutOf(st.Config), taken: st.Taken, seenTail: st.Taken, seenHead: st.SeenHead,
		completed: st.Completed, published: st.Completed, handedOut: true,
	}
	defer func() {
		if err != nil {
			s.releaseAll()
		}
	}()
	mem, memErr := shm.FromFD(ring, s.bytes)
	in, inErr := shm.ReceiverFromFD(work)
	out, outErr := shm.SenderFromFD(done)
	if mem != nil {
		s.mem = mem
	}
	if in != nil {
		s.work = in
	}
	if out != nil {
		s.done = out
	}
	for _, err := range []error{memErr, inErr, outErr, st.check()} {
		if err != nil {
			return nil, err
		}
	}
	if s.mapping, err = s.mem.Map(0, s.mem.Size(), true); err != nil {
		return nil, err
	}
	s.view, err = viewOf(s.mapping, s.layout)
	return s, err
}

// check refuses positions that no Server has.
func (st State) check() error {
	if err := st.Config.check(); err != nil {
		return err
	}
	entries := uint64(st.Entries)
	switch {
	case st.Completed > st.Taken, st.Taken-st.Completed > entries+BatchEntries,
		st.SeenHead > st.Completed, st.Taken-st.SeenHead > 2*entries:
		return gpuerr.New(gpuerr.Protocol, "a ring of %d entries cannot stand at %d taken, %d completed, %d seen", entries, st.Taken, st.Completed, st.SeenHead)
	}
	return nil
}

// RestoreBatch makes a Batch that holds entries which were taken and not begun, for a
// queue with entries that have at most argBytes of arguments. Entries were copied out of a
// ring once, and nothing of them is read again.
func RestoreBatch(argBytes uint32, entries []Taken) (*Batch, error) {
	b := NewBatch(argBytes)
	if len(entries) == 0 {
		return b, nil
	}
	if len(entries) > BatchEntries {
		return nil, gpuerr.New(gpuerr.Protocol, "%d entries are more than a batch has", len(entries))
	}
	b.Entries = make([]Taken, 0, BatchEntries)
	b.words = make([]uint64, argWords(BatchArgBytes))
	for i := range entries {
		t := entries[i]
		if t.Code == gpuerr.None {
			if err := t.checkArgs(b.argBytes); err != nil {
				return nil, err
			}
		}
		b.Entries = append(b.Entries, t)
	}
	return b, nil
}

// checkArgs refuses an entry without the arguments that it names.
func (t *Taken) checkArgs(most uint32) error {
	if err := Check(&t.Entry, MaxArgBytes); err != nil {
		return err
	}
	want := uint64(0)
	if t.Op == OpLaunch || t.Op == OpReplay {
		_, bytes := t.ArgRange()
		if bytes > most {
			return gpuerr.New(gpuerr.Protocol, "an entry has %d bytes of arguments, more than the queue takes", bytes)
		}
		want = argWords(bytes)
	}
	if uint64(len(t.Args)) != want {
		return gpuerr.New(gpuerr.Protocol, "an entry has %d words of arguments, not %d", len(t.Args), want)
	}
	return nil
}

// Drop releases this side of a ring that another Server goes on with, or has gone on with:
// unlike Close it says nothing to the client.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.err = gpuerr.New(gpuerr.Closed, "another goes on with this ring")
	s.releaseAll()
}
