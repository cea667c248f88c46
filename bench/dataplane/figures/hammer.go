package figures

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/service"
	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// hammer is a client that speaks the protocol itself, so that it can keep using a
// closed session: it holds the ring and the memory, and checks nothing.
type hammer struct {
	caller   *control.Caller
	ring     *ring.Client
	program  uint64
	bindings [kernelBuffers]ring.Binding
	memory   [kernelBuffers][]byte // read by the launches and, the last, written
	closed   atomic.Bool

	tried    int // uses after the answer to Close
	accepted int // of those
}

// newHammer opens a session, by docs/wire.md, with everything for a launch.
func newHammer(ctx context.Context, s *service.Service) (_ *hammer, err error) {
	h := &hammer{}
	defer func() {
		if err != nil {
			_ = h.release()
		}
	}()

	if h.caller, err = openRaw(ctx, s.Socket); err != nil {
		return nil, err
	}

	for i := range h.bindings {
		m, err := h.createBuffer(ctx)
		if err != nil {
			return nil, err
		}
		r, err := control.ParseCreateBufferReply(m.Body)
		if err == nil {
			h.memory[i], err = unix.Mmap(m.FDs[0], int64(r.MemOff), 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
		m.CloseFDs()
		if err != nil {
			return nil, err
		}
		h.bindings[i] = ring.Binding{Buffer: r.Handle, Len: kernelBytes}
	}

	m, err := h.caller.Call(ctx, control.TypeOpenProgram, control.OpenProgramRequest{Name: kernel}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}

	program, err := control.ParseProgramReply(m.Body)
	if err != nil {
		return nil, err
	}

	h.program = program.Handle
	m, err = h.caller.Call(ctx, control.TypeCreateQueue, control.CreateQueueRequest{Entries: batch, ArgBytes: argBytes(batch)}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}

	h.ring, err = ring.Attach(m.FDs[0], m.FDs[1], m.FDs[2])
	return h, err
}

// openRaw asks the broker for a session.
func openRaw(ctx context.Context, socket string) (*control.Caller, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		unix.Close(fd)
		return nil, err
	}

	broker, err := newCaller(fd)
	if err != nil {
		return nil, err
	}
	defer broker.Close()

	if _, err := broker.Call(ctx, control.TypeHello, control.HelloRequest{Version: control.HelloVersion}.AppendTo(nil), nil); err != nil {
		return nil, err
	}

	m, err := broker.Call(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}

	return newCaller(m.FDs[0])
}

func newCaller(fd int) (*control.Caller, error) {
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, err
	}
	return control.NewCaller(conn), nil
}

// createBuffer makes a page. The caller closes the descriptors.
func (h *hammer) createBuffer(ctx context.Context) (*control.Message, error) {
	return h.caller.Call(ctx, control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil), nil)
}

// goesOn is the time for which the hammer continues after the answer to Close.
const goesOn = 500 * time.Microsecond

const (
	addend   = 0x40 // each byte of the operands: their sum has no byte 0
	sentinel = 0xa5 // each byte of the result: no launch writes it
)

func fill(mem []byte, b byte) {
	for i := range mem[:kernelBytes] {
		mem[i] = b
	}
}

// run launches, as fast as it can, until some time after the session was closed.
func (h *hammer) run() error {
	entry := ring.LaunchEntry(0, h.program, ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{}, 0, 0)
	var done [64]ring.Completion
	var end time.Time
	firstLate, completed := uint64(0), uint64(0)
	for ticket := uint64(1); end.IsZero() || time.Now().Before(end); {
		closed := h.closed.Load()
		if closed && end.IsZero() {
			end, firstLate = time.Now().Add(goesOn), ticket
			fill(h.memory[kernelBuffers-1], sentinel)
		}

		// The session's memory is zeroed some time after its close: a launch that
		// still ran would add something other than zeros, and so can be recognised.
		for _, operand := range h.memory[:kernelBuffers-1] {
			fill(operand, addend)
		}

		// Half of the ring stays free, to be used after the close.
		if closed || ticket-1-completed < batch/2 {
			entry.UserData = ticket
			switch err := h.ring.Push(&entry, h.bindings[:], nil); {
			case err == nil:
				ticket++
				if closed {
					h.tried++
				}
			case !errors.Is(err, gpuerr.QueueFull):
				return err
			}
		}

		if err := h.ring.Flush(); err != nil {
			return err
		}

		n, _ := h.ring.Poll(done[:]) // a closed ring reports that, rightly
		completed += uint64(n)
		for i := range done[:n] {
			if c := &done[i]; firstLate > 0 && c.UserData >= firstLate && c.Outcome.Kind == outcome.OK {
				h.accepted++
			}
		}
	}

	for _, b := range h.memory[kernelBuffers-1][:kernelBytes] {
		if b != sentinel && b != 0 {
			h.accepted++ // a launch wrote, whatever its completion was
			break
		}
	}

	return nil
}

// closeSession returns when the service has answered, after one more call that must
// fail.
func (h *hammer) closeSession(ctx context.Context) error {
	_, err := h.caller.Call(ctx, control.TypeClose, nil, nil)
	h.closed.Store(true)
	if err != nil {
		return err
	}
	if m, late := h.createBuffer(ctx); late == nil {
		m.CloseFDs()
		return errors.New("a session that was closed has made a buffer")
	}
	return nil
}

func (h *hammer) release() error {
	var errs []error
	if h.ring != nil {
		errs = append(errs, h.ring.Close())
	}
	for _, mem := range h.memory {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	if h.caller != nil {
		_ = h.caller.Close() // the service has closed it already
	}
	return errors.Join(errs...)
}
