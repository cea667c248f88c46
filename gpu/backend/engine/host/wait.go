package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
)

// runWait tells the core how runs end. It ends with the device, or shuts the link: the core then
// sees that the engine is of no use, also where the serving goroutine is blocked in the library.
func (s *server) runWait() {
	defer s.waiters.Done()
	for {
		res, err := s.dev.Wait()
		if errors.Is(err, ErrClosed) {
			return
		}

		if err == nil {
			err = s.tell(&res)
		} else {
			s.lost(err)
		}
		if err != nil {
			s.failed.CompareAndSwap(nil, &err)
			_ = unix.Shutdown(s.link, unix.SHUT_RDWR) // the peer may be gone
			return
		}
	}
}

// tell tells the ends of the oldest run, if res is not nil, and of those behind it that have
// their answer already.
func (s *server) tell(res *wire.Result) error {
	r := &s.runs
	r.mu.Lock()
	defer r.mu.Unlock() // answers go out in the order of the runs
	var out []byte
	for len(r.all) > 0 {
		x := r.all[0]
		a := x.answer
		if a == nil && res != nil {
			a, res = &wire.Answer{Kind: x.order.Kind, Seq: x.order.Seq, Result: res}, nil
		}
		if a == nil {
			break
		}

		r.all = r.all[1:]
		if x.list != nil {
			if x.list.runs--; x.list.once && x.list.runs == 0 {
				r.ended = append(r.ended, x.list)
			}
		}
		out = wire.AppendAnswer(out[:0], a)
		if err := sendAnswer(s.link, out); err != nil {
			return err
		}
		if a.Lost {
			return ErrLost
		}
	}
	if res != nil {
		return errors.New("the device ended a run that was not submitted")
	}
	return nil
}

// lost tells the oldest run that the device is.
func (s *server) lost(err error) {
	r := &s.runs
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > 0 {
		a := failure(&r.all[0].order, fmt.Errorf("%w: %w", ErrLost, err))
		_ = sendAnswer(s.link, wire.AppendAnswer(nil, a)) // it is the end in any case
	}
}

// finish gives everything back, if nothing runs: else the end of the process does.
func (s *server) finish() error {
	if !s.greeted {
		return s.dev.Close()
	}
	if s.runs.count() > 0 || s.failed.Load() != nil {
		return nil
	}
	if err := s.forget(); err != nil {
		return err
	}
	if err := s.dev.Close(); err != nil {
		return fmt.Errorf("close the device: %w", err)
	}
	s.deafen()
	s.waiters.Wait()
	for _, m := range s.memories {
		if m.mapping != nil {
			if err := shm.Unmap(m.mapping); err != nil {
				return err
			}
		}
	}
	return nil
}
