package engine

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// call is an order that is no run, until its answer.
type call struct {
	kind   wire.Kind
	answer chan *wire.Answer // capacity 1; nil: nobody waits, and it must not fail
}

// errEngineDied is the error of calls of an engine that dies meanwhile.
var errEngineDied = gpuerr.New(gpuerr.IO, "the engine has died")

// call gives an order and waits for its answer, or the engine's death. An engine that takes too
// long is killed.
func (p *proc) call(o *wire.Order, fd int) (*wire.Answer, error) {
	b := p.b
	c := &call{o.Kind, make(chan *wire.Answer, 1)}
	b.mu.Lock()
	if p.dead {
		b.mu.Unlock()
		return nil, errEngineDied
	}
	p.seq++
	o.Seq = p.seq
	p.calls[o.Seq] = c
	b.mu.Unlock()
	if err := p.send(o, fd); err != nil {
		b.mu.Lock()
		b.failLocked(p, err.Error(), false)
		b.mu.Unlock()
		return nil, errEngineDied
	}

	timer := time.NewTimer(b.bound)
	defer timer.Stop()
	select {
	case a := <-c.answer:
		if a.Code != gpuerr.None {
			return nil, gpuerr.New(a.Code, "an engine's %v: %.200q", o.Kind, a.Text)
		}
		return a, nil
	case <-p.over:
		return nil, errEngineDied
	case <-timer.C:
		b.mu.Lock()
		b.failLocked(p, fmt.Sprintf("an order, %v, was not carried out in %v", o.Kind, b.bound), false)
		b.mu.Unlock()
		return nil, errEngineDied
	}
}

// postLocked gives an order that cannot fail. The caller holds Backend.mu.
//
// +checklocksignore: it is p.b's
func (p *proc) postLocked(o *wire.Order) {
	if p.dead {
		return
	}
	p.seq++
	o.Seq = p.seq
	if o.Kind != wire.Stop {
		p.calls[o.Seq] = &call{kind: o.Kind}
	}
	if err := p.send(o, -1); err != nil {
		p.b.failLocked(p, err.Error(), false)
	}
}

// send never waits for the engine: what the socket has no room for goes to the backlog.
func (p *proc) send(o *wire.Order, fd int) (err error) {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.out = wire.AppendOrder(p.out[:0], o)
	out := p.out
	err = unix.EAGAIN
	if len(p.backlog) == 0 {
		controlErr := p.raw.Control(func(link uintptr) { err = wire.Send(int(link), out, fd, unix.MSG_DONTWAIT) })
		if controlErr != nil {
			err = controlErr
		}
	}
	if err == unix.EAGAIN {
		err = p.postpone(fd)
	}
	if err != nil {
		err = fmt.Errorf("give an engine an order, %v: %w", o.Kind, err)
	}
	return err
}

// maxBacklogBytes is what an engine may leave unread, besides what is in its socket.
const maxBacklogBytes = 64 << 20

// postponed is an order that waits for room in the socket.
type postponed struct {
	b  []byte
	fd int // its own; -1: none
}

// postpone puts p.out behind the orders that wait.
//
// +checklocks:p.sending
func (p *proc) postpone(fd int) (err error) {
	if p.backlogBytes += len(p.out); p.backlogBytes > maxBacklogBytes {
		return errors.New("it reads none")
	}
	if fd >= 0 { // the caller's may be another's when its turn comes
		if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
	}
	p.backlog = append(p.backlog, postponed{bytes.Clone(p.out), fd})
	signal(p.waits)
	return nil
}

// runWriter sends the backlog when there is room, until the engine is dead.
func (p *proc) runWriter() {
	for {
		select {
		case <-p.waits:
			if err := p.raw.Write(p.flush); err != nil {
				return // it was closed
			}
		case <-p.over:
			return
		}
	}
}

// flush sends what there is room for. It is false if there is more.
func (p *proc) flush(link uintptr) bool {
	p.sending.Lock()
	defer p.sending.Unlock()
	for len(p.backlog) > 0 {
		o := p.backlog[0]
		if wire.Send(int(link), o.b, o.fd, unix.MSG_DONTWAIT) == unix.EAGAIN {
			return false
		}
		// After any other error the reader sees that the engine is gone.
		p.dropPostponed()
	}
	return true
}

// dropPostponed forgets the first order of the backlog.
//
// +checklocks:p.sending
func (p *proc) dropPostponed() {
	o := p.backlog[0]
	p.backlog[0] = postponed{}
	if p.backlog = p.backlog[1:]; o.fd >= 0 {
		_ = unix.Close(o.fd)
	}
	p.backlogBytes -= len(o.b)
}

// stopLocked has the oldest run end soon, if it is to be stopped. Runs behind it would be
// stopped, too, when it ends meanwhile: it is known to be short then, and is given a moment.
// The caller holds Backend.mu.
func (p *proc) stopLocked() {
	if p.dead || len(p.sent) == 0 || !p.sent[0].stop || p.stopping == p.sent[0] {
		return
	}
	j := p.sent[0]
	if len(p.sent) == 1 {
		p.stopNowLocked(j)
		return
	}

	b := p.b
	time.AfterFunc(stopAfter, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !p.dead && len(p.sent) > 0 && p.sent[0] == j && p.stopping != j {
			p.stopNowLocked(j)
		}
	})
}

// stopAfter is what a run that is expected to be short has to end by itself.
const stopAfter = 2 * time.Millisecond

// stopNowLocked stops all runs that were ordered. The signal reaches an engine that is at
// something else; the order says which runs are meant. The caller holds Backend.mu.
//
// +checklocksignore: it is p.b's
func (p *proc) stopNowLocked(j *job) {
	p.stopping, p.stopped = j, true
	if err := p.signal(); err != nil {
		p.b.failLocked(p, err.Error(), false)
		return
	}
	p.postLocked(&wire.Order{Kind: wire.Stop})
}

// signal writes to the engine's pipe. It does not wait: an engine that leaves so much unread is of
// no use.
func (p *proc) signal() error {
	raw, err := p.stop.SyscallConn()
	if err != nil {
		return err
	}
	var writeErr error
	if err := raw.Control(func(fd uintptr) { _, writeErr = unix.Write(int(fd), []byte{1}) }); err != nil {
		return err
	}
	return writeErr
}

// freePipelineLocked takes a program from an engine.
//
// +checklocks:b.mu
func (b *Backend) freePipelineLocked(p *proc, v *variant) {
	if p.compiled[v] {
		delete(p.compiled, v)
		p.postLocked(&wire.Order{Kind: wire.FreePipeline, ID: uint32(v.id)})
	}
}

// Forget implements backend.Recorder.
func (b *Backend) Forget(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.lists[id]
	if r == nil {
		return
	}
	delete(b.lists, id)
	for _, p := range b.procs {
		if p.recorded[r] {
			delete(p.recorded, r)
			p.postLocked(&wire.Order{Kind: wire.FreeList, ID: uint32(r.id)})
		}
	}
	b.listIDs.give(uint32(r.id))
}
