package sim

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/gpu"
	"capgpu/outcome"
)

func (w *world) createBuffer() {
	s := w.session(true)
	if s == nil || len(s.bufs) > 12 {
		return
	}
	bytes := uint64(4096) << w.rand.IntN(4)
	if w.rand.IntN(10) == 0 {
		bytes = 1<<20 + 4096 // one of its own
	}
	w.createBufferOf(s, bytes)
}

func (w *world) createBufferOf(s *session, bytes uint64) {
	b := &buffer{fd: -1}
	w.begin(s, fmt.Sprintf("createBuffer %d %d", s.n, bytes), func() error {
		info, err := s.real.CreateBuffer(context.Background(), bytes, 0)
		if err != nil {
			return err
		}
		b.h, b.bytes = info.Handle, info.MemLen
		if b.fd, err = s.real.BufferFD(info.Handle); err != nil {
			return err
		}
		b.mem, err = unix.Mmap(b.fd, int64(info.MemOff), int(info.MemLen), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	}, func(err error) {
		if err != nil {
			b.unmap()
			return
		}
		for i := 0; i < len(b.mem); i += 8 {
			if [8]byte(b.mem[i:i+8]) != [8]byte{} {
				w.violate("a new buffer of session %d is not zero at %d", s.n, i)
				break
			}
		}
		b.mem[0], b.mem[len(b.mem)/2], b.mem[len(b.mem)-1] = 0xff, 0xff, 0xff
		s.bufs = append(s.bufs, b)
	})
}

func (w *world) destroyBuffer() {
	s := w.session(true)
	if s == nil || len(s.bufs) == 0 {
		return
	}
	i := w.rand.IntN(len(s.bufs))
	b := s.bufs[i]
	s.bufs = append(s.bufs[:i:i], s.bufs[i+1:]...)
	b.dying = true
	w.begin(s, fmt.Sprintf("destroyBuffer %d", s.n), func() error {
		err := s.real.DestroyBuffer(b.h)
		if err == nil {
			b.dead.Store(true)
		}
		return err
	}, func(error) { b.unmap() })
}

func (w *world) createFence() {
	s := w.session(true)
	if s != nil && len(s.fences) <= 6 {
		w.createFenceOf(s)
	}
}

func (w *world) createFenceOf(s *session) {
	f := &fence{}
	w.begin(s, fmt.Sprintf("createFence %d", s.n), func() (err error) {
		f.h, err = s.real.CreateFence(0)
		return err
	}, func(err error) {
		if err == nil {
			s.fences = append(s.fences, f)
		}
	})
}

func (w *world) signalFence() {
	s := w.session(true)
	if s == nil || len(s.fences) == 0 {
		return
	}
	f := s.fences[w.rand.IntN(len(s.fences))]
	f.next++
	v := f.next
	w.begin(s, fmt.Sprintf("signalFence %d %d", s.n, v), func() error { return s.real.SignalFence(f.h, v) }, func(err error) {
		if err == nil {
			f.promised = append(f.promised, promise{value: v})
		}
	})
}

// waitFence waits for a promised point.
func (w *world) waitFence() {
	s := w.session(true)
	if s == nil || len(s.fences) == 0 {
		return
	}

	f := s.fences[w.rand.IntN(len(s.fences))]
	if len(f.promised) == 0 {
		return
	}

	p := f.promised[w.rand.IntN(len(f.promised))]
	var st gpu.FenceState
	s.busy-- // it may take any time
	c := w.begin(s, fmt.Sprintf("waitFence %d %d", s.n, p.value), func() (err error) {
		st, err = s.real.WaitFence(context.Background(), f.h, p.value)
		return err
	}, func(err error) {
		s.busy++
		if err != nil {
			return
		}
		w.trace("reached %v", st.Outcome)
		w.reached(f, p, st)
	})

	c.waits = &wait{f, p.value}
}

func (w *world) createQueue() {
	s := w.session(true)
	if s != nil && len(s.queues) <= 2 {
		w.createQueueOf(s)
	}
}

func (w *world) createQueueOf(s *session) {
	q := &queue{n: w.clients.calling + 1, s: s, group: outcome.Success, done: make(chan struct{})}
	w.begin(s, fmt.Sprintf("createQueue %d", s.n), func() error {
		info, err := s.real.CreateQueue(16, q.argBytes())
		if err != nil {
			return err
		}
		q.h = info.Handle
		if s.program == 0 {
			s.program, _, err = s.real.OpenProgram(programName)
		}
		return err
	}, func(err error) {
		if s.parent == nil { // otherwise its branch may be banned, for good
			w.asked(s.t, err)
		}
		if err != nil {
			return
		}
		s.drv.mu.Lock()
		q.local = s.drv.rings[q.argBytes()]
		s.drv.mu.Unlock()
		s.queues = append(s.queues, q)
		go q.run(w)
	})
}

func (w *world) closeQueue() {
	s := w.session(true)
	q := w.queue(s)
	if q == nil {
		return
	}
	q.ending = true
	w.begin(s, fmt.Sprintf("closeQueue %d", q.n), func() error { return s.real.CloseQueue(q.h) }, func(error) {})
}

func (w *world) cancelQueue() {
	s := w.session(true)
	q := w.queue(s)
	if q == nil || q.held.Load() != nil {
		return // it may wait for room
	}
	w.begin(s, fmt.Sprintf("cancelQueue %d", q.n), func() error { return s.real.CancelQueue(q.h) }, func(error) {})
}
