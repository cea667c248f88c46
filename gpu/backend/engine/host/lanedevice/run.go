package lanedevice

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
	"capgpu/outcome"
	"capgpu/program/instrument"
	"capgpu/program/lane"
)

// runRuns is the device: it runs what is submitted, in order.
func (d *Device) runRuns() {
	for {
		select {
		case s := <-d.queue:
			d.runs++
			fault := Healthy
			if d.runs == d.o.FaultAt {
				fault = d.o.Fault
			}
			r, told := d.one(s, fault)
			if !told {
				continue
			}
			select {
			case d.results <- r:
			case <-d.done:
				return
			}
		case <-d.done:
			return
		}
	}
}

// one is a run with its fault, if it has one.
func (d *Device) one(s *submitted, fault Fault) (r result, told bool) {
	switch fault {
	case Crash:
		os.Exit(3)
	case Hang:
		<-d.done
	}

	began := time.Now()
	r.res, r.err = d.run(s)
	r.res.DeviceTime = time.Since(began)
	if fault == BadSlot {
		r.res = wire.Result{Begun: 1, Early: true}
		binary.LittleEndian.PutUint32(r.res.Slot[instrument.SiteOff:], 1<<31)
	}
	return r, fault != Silent
}

// run is the run of a list.
func (d *Device) run(s *submitted) (res wire.Result, err error) {
	l := s.list
	if !d.begin(s) {
		return wire.Result{Skipped: true}, nil
	}

	for i := range l.entries {
		e := &l.entries[i]
		res.Begun++
		addr, faulted := shm.Guard(func() {
			if e.Op == wire.OpLaunch {
				err = l.launch(i)
			} else {
				move(e)
			}
		})
		if faulted {
			return res, fmt.Errorf("%w: no memory at %#x", host.ErrLost, addr)
		}
		if err != nil {
			return res, err
		}
		if _, early := instrument.First(l.trap); early {
			res.Early = true
			copy(res.Slot[:], l.trap[instrument.SlotOff(i):])
			break
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.skipping = nil, res.Early
	return res, nil
}

// begin arms the trap buffer, unless the run is skipped.
func (d *Device) begin(s *submitted) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.skipping {
		return false
	}

	l := s.list
	instrument.ArmHead(l.trap)
	for i := range l.entries {
		if e := &l.entries[i]; e.Op == wire.OpLaunch {
			// The wire's limits are those of a slot.
			_ = instrument.ArmSlot(l.trap[instrument.SlotOff(i):], l.lengths[i], e.Rounds)
		}
	}
	if s.n <= d.stopped {
		binary.LittleEndian.PutUint32(l.trap[instrument.StopOff:], 1)
	}
	d.running = l
	return true
}

// bytes is a span.
func bytes(e *host.Entry, i int) []byte {
	s := e.Spans[i]
	return e.Memory[i].(*memory).bytes[s.Off : s.Off+s.Length]
}

func move(e *host.Entry) {
	to := bytes(e, 0)
	if e.Op == wire.OpCopy {
		copy(to, bytes(e, 1))
		return
	}
	if len(to) == 0 {
		return
	}
	binary.LittleEndian.PutUint32(to, e.Pattern)
	for n := 4; n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

// behind is how much of the memory behind a binding a kernel may read: the lane engine traps
// where a device would read something, and drop what is written.
const behind = 8 << 10

var nothing [behind]byte

func (l *list) launch(i int) error {
	e := &l.entries[i]
	p := e.Pipeline.(*pipeline)
	bindings := make([][]byte, len(e.Spans), len(e.Spans)+1)
	for k, s := range e.Spans {
		all := e.Memory[k].(*memory).bytes
		if bindings[k] = all[s.Off:min(uint64(len(all)), s.Off+s.Length+behind)]; len(bindings[k]) == 0 {
			bindings[k] = nothing[:]
		}
	}
	bindings = append(bindings, l.trap)

	push := binary.LittleEndian.AppendUint32(append(make([]byte, 0, len(e.Push)+4), e.Push...), uint32(i))
	work := &lane.Launch{Grid: e.Grid, Bindings: bindings, Inline: push}
	if r := p.worker.Run(work, 0, e.Grid.Count(), nil); r.Trap.Kind != outcome.NoTrap {
		return fmt.Errorf("%w: %v", errNative, r.Trap)
	}
	return nil
}
