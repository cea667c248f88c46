// Package wire speaks the service's protocols without any of the care of package
// client: it maps all of every memory that it gets, and sends any bytes. An
// attacker would write such a client, or one that looks for residue of others.
package wire

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/control"
)

// Session is a control socket.
type Session struct {
	*control.Caller
	maps [][]byte
}

// Memory is a piece of shared memory, mapped as a whole, including the parts before
// and behind the requested range.
type Memory struct {
	Handle uint64
	FD     int    // the memory's; closed with the session
	All    []byte // the whole file
	Off    int    // of the requested range
	Len    int
}

// Dial connects to a tenant socket and says hello.
func Dial(ctx context.Context, socket string) (*control.Caller, error) {
	fd, err := Connect(socket, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	broker, err := newCaller(fd)
	if err != nil {
		return nil, err
	}
	if _, err := broker.Call(ctx, control.TypeHello, control.HelloRequest{Version: control.HelloVersion}.AppendTo(nil), nil); err != nil {
		_ = broker.Close() // the first error is returned
		return nil, err
	}
	return broker, nil
}

// Connect opens a bare socket. The caller closes it.
func Connect(path string, kind int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("connect to %s: %w", path, err)
	}
	return fd, nil
}

// Open opens a session on the first device of a tenant.
func Open(ctx context.Context, socket string) (*Session, error) {
	broker, err := Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer broker.Close()
	m, err := broker.Call(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}
	c, err := newCaller(m.FDs[0])
	return &Session{Caller: c}, err
}

func newCaller(fd int) (*control.Caller, error) {
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, err
	}
	return control.NewCaller(conn), nil
}

// Buffer makes a buffer and maps the whole memory that contains it.
func (s *Session) Buffer(ctx context.Context, bytes uint64) (*Memory, error) {
	m, err := s.Call(ctx, control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: bytes}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}
	r, err := control.ParseCreateBufferReply(m.Body)
	if err != nil {
		m.CloseFDs()
		return nil, err
	}
	return s.mapAll(&Memory{Handle: r.Handle, FD: m.FDs[0], Off: int(r.MemOff), Len: int(r.MemLen)})
}

// Queue is the memory of a queue, and its two other descriptors.
type Queue struct {
	*Memory
	SQ, CQ int
}

// Queue makes a queue and maps its ring.
func (s *Session) Queue(ctx context.Context, entries, argBytes uint32) (*Queue, error) {
	m, err := s.Call(ctx, control.TypeCreateQueue, control.CreateQueueRequest{Entries: entries, ArgBytes: argBytes}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}
	r, err := control.ParseCreateQueueReply(m.Body)
	if err != nil {
		m.CloseFDs()
		return nil, err
	}
	mem, err := s.mapAll(&Memory{Handle: r.Handle, FD: m.FDs[0]})
	if err != nil {
		return nil, errors.Join(err, unix.Close(m.FDs[1]), unix.Close(m.FDs[2]))
	}
	return &Queue{Memory: mem, SQ: m.FDs[1], CQ: m.FDs[2]}, nil
}

// Program opens a program of the device by its name, and returns its handle.
func (s *Session) Program(ctx context.Context, name string) (uint64, error) {
	m, err := s.Call(ctx, control.TypeOpenProgram, control.OpenProgramRequest{Name: name}.AppendTo(nil), nil)
	if err != nil {
		return 0, err
	}
	r, err := control.ParseProgramReply(m.Body)
	return r.Handle, err
}

func (s *Session) mapAll(m *Memory) (_ *Memory, err error) {
	var st unix.Stat_t
	if err = unix.Fstat(m.FD, &st); err == nil {
		m.All, err = unix.Mmap(m.FD, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(m.FD))
	}
	s.maps = append(s.maps, m.All)
	return m, nil
}

// Forget unmaps everything; the session and its descriptors stay.
func (s *Session) Forget() {
	for _, mem := range s.maps {
		_ = unix.Munmap(mem) // it is ours, or this process has a bug that shows elsewhere
	}
	s.maps = nil
}
