package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// Serve carries out the orders of a link, a SOCK_SEQPACKET socket, until the core closes it: then
// it closes the device and returns nil. An order that breaks the rules of the wire is an error,
// and the end of the engine. So is a lost device, after the core was told. Where runs have not
// ended the device is left as it is, with a goroutine: the process has to end.
//
// The orders are read and carried out on the caller's goroutine. One waits for ends of runs
// (wait.go), and one for the core's signal to stop (wire.Hello).
func Serve(link int, dev Device) error {
	s := &server{
		link: link, dev: dev, device: dev.Describe(),
		memories: map[wire.MemoryID]*memory{}, pipelines: map[wire.PipelineID]*pipeline{}, lists: map[wire.ListID]*list{},
	}
	if err := unix.SetNonblock(link, false); err != nil {
		return fmt.Errorf("make the link blocking: %w", err)
	}

	defer s.deafen()
	in := wire.NewReceiver(wire.MaxOrderBytes)
	for {
		b, fd, err := in.Spin(link)
		if err == unix.EAGAIN {
			b, fd, err = in.Late(link, 0)
		}
		switch {
		case errors.Is(err, io.EOF) && s.failed.Load() != nil:
			return *s.failed.Load()
		case errors.Is(err, io.EOF):
			return s.finish()
		case err != nil:
			return errors.Join(fmt.Errorf("read an order: %w", err), s.finish())
		}

		o, err := wire.ParseOrder(b)
		if err == nil && o.Kind.HasDescriptor() != (fd >= 0) {
			err = fmt.Errorf("order %v: a descriptor came, or none", o.Kind)
		}
		if err == nil {
			err = s.order(o, fd)
		} else if fd >= 0 {
			_ = unix.Close(fd)
		}
		if err != nil {
			return errors.Join(err, s.finish())
		}
	}
}

// server is the state of Serve. All but runs is the serving goroutine's.
type server struct {
	link      int
	dev       Device
	device    wire.Device
	greeted   bool
	memories  map[wire.MemoryID]*memory
	pipelines map[wire.PipelineID]*pipeline
	lists     map[wire.ListID]*list
	runs      runs
	out       []byte

	stop    *os.File // the core's pipe
	stops   stops
	waiters sync.WaitGroup
	failed  atomic.Pointer[error] // why runWait has shut the link
}

type memory struct {
	Memory
	bytes   uint64
	mapping []byte // of an import
	users   int    // lists
}

type pipeline struct {
	Pipeline
	spec  wire.Pipeline // without the module
	users int
}

// list is one that was recorded.
type list struct {
	List
	memories  []*memory
	pipelines []*pipeline
	entries   uint32
	once      bool
	runs      int // that are ordered and not ended; guarded by runs.mu
}

// errRule is the end of an engine: the core never sends such an order.
func errRule(o *wire.Order, format string, args ...any) error {
	return fmt.Errorf("order %v %d: "+format, append([]any{o.Kind, o.Seq}, args...)...)
}

// order carries one out. It owns fd. An error is the end.
func (s *server) order(o *wire.Order, fd int) error {
	if s.greeted == (o.Kind == wire.Hello) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return errRule(o, "hello comes first, and once")
	}
	if err := s.forget(); err != nil {
		return err
	}

	switch o.Kind {
	case wire.Hello:
		return s.hello(o, fd)
	case wire.Import:
		return s.imports(o, fd)
	case wire.Alloc:
		return s.alloc(o)
	case wire.Free:
		return s.free(o)
	case wire.Compile:
		return s.compile(o)
	case wire.FreePipeline:
		return s.freePipeline(o)
	case wire.Record:
		return s.record(o)
	case wire.FreeList:
		return s.freeList(o)
	case wire.Run, wire.RunOnce:
		return s.run(o)
	case wire.Resume:
		if s.runs.count() > 0 {
			return errRule(o, "runs have not ended")
		}
		s.runs.resume()
		return s.answer(o, s.dev.Resume())
	default: // Stop
		s.stops.ordered(s.dev)
		return nil
	}
}

// answer tells how an order went. A lost device is the end, once that is told.
func (s *server) answer(o *wire.Order, err error) error {
	a := failure(o, err)
	if sendErr := s.send(a); sendErr != nil {
		return sendErr
	}
	if a.Lost {
		return err
	}
	return nil
}

// failure is the answer to an order that ended with an error; nil: it did not fail.
func failure(o *wire.Order, err error) *wire.Answer {
	a := &wire.Answer{Kind: o.Kind, Seq: o.Seq}
	if err != nil {
		a.Code, a.Lost, a.Text = gpuerr.CodeOf(err), errors.Is(err, ErrLost), err.Error()
		a.Text = a.Text[:min(len(a.Text), wire.MaxTextBytes)]
	}
	return a
}

func (s *server) send(a *wire.Answer) error {
	s.out = wire.AppendAnswer(s.out[:0], a)
	return sendAnswer(s.link, s.out)
}

func sendAnswer(link int, b []byte) error {
	if err := wire.Send(link, b, -1, 0); err != nil {
		return fmt.Errorf("send an answer: %w", err)
	}
	return nil
}

// hello tells what device it is, and begins to listen for the core's signal.
func (s *server) hello(o *wire.Order, fd int) error {
	s.greeted = true
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("poll the core's signal: %w", err)
	}
	s.stop = os.NewFile(uintptr(fd), "stop")
	s.waiters.Add(2)
	go s.runStop()
	go s.runWait()
	return s.send(&wire.Answer{Kind: o.Kind, Seq: o.Seq, Device: &s.device})
}

// runStop stops the device when the core says so, whatever the serving goroutine is at.
func (s *server) runStop() {
	defer s.waiters.Done()
	var signals [64]byte
	for {
		n, err := s.stop.Read(signals[:])
		if err != nil { // the core is gone, or the device is closed
			return
		}
		s.stops.signalled(s.dev, n)
	}
}

// deafen ends runStop.
func (s *server) deafen() {
	if s.stop != nil {
		_ = s.stop.Close() // of a pipe's reading end: nothing can be lost
	}
}

// stops pairs the core's signals with its orders to stop. A signal may be noticed late, behind
// its order and runs that came after that, which it does not mean.
type stops struct {
	mu sync.Mutex
	// +checklocks:mu
	signals, orders int
}

func (s *stops) signalled(dev Device, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signals += n; s.signals > s.orders {
		dev.Stop() // the order is still to come, and runs behind it, too
	}
}

func (s *stops) ordered(dev Device) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders++
	dev.Stop()
}

// forget gives lists back that were recorded for one run, which has ended.
func (s *server) forget() error {
	for _, l := range s.runs.takeEnded() {
		if err := s.release(l); err != nil {
			return err
		}
	}
	return nil
}

// release ends a list of which no run is submitted.
func (s *server) release(l *list) error {
	for _, m := range l.memories {
		m.users--
	}
	for _, p := range l.pipelines {
		p.users--
	}
	if err := l.List.Free(); err != nil {
		return fmt.Errorf("free a list: %w", err)
	}
	return nil
}

// runs are those that were ordered and have not ended.
type runs struct {
	mu sync.Mutex
	// +checklocks:mu
	all []*run // the oldest first
	// +checklocks:mu
	ended []*list
	// skipping says that a run could not be submitted: until Resume none is.
	//
	// +checklocks:mu
	skipping bool
}

// run is one. If it could not be submitted it has its answer from the beginning, and waits for
// its turn.
type run struct {
	order  wire.Order // without entries
	list   *list      // nil: it could not be recorded
	answer *wire.Answer
}

func (r *runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *runs) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipping = false
}

func (r *runs) takeEnded() (ended []*list) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, r.ended = r.ended, nil
	return ended
}
