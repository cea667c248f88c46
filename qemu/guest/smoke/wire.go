package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// wire is a SEQPACKET peer written from docs/wire.md alone, without package
// control: it can say what no client library would, and it is a second reading
// of the document.
type wire struct {
	fd  int
	seq uint64
}

// Message types and header fields of docs/wire.md.
const (
	wireMagic  = 0x4743
	headerSize = 24

	msgHello        = 1
	msgOpenDevice   = 3
	msgDescribe     = 32
	msgCreateBuffer = 34
	msgFenceState   = 38
	msgCreateQueue  = 44
	replyBit        = 0x8000
)

// helloVersion is that of docs/wire.md.
const helloVersion = 2

// wireAnswer bounds the wait for one reply.
const wireAnswer = 10 * time.Second

var errHungUp = errors.New("the peer closed the socket")

func dialWire(path string) (*wire, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	w, err := newWire(fd)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func newWire(fd int) (*wire, error) {
	tv := unix.NsecToTimeval(wireAnswer.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &wire{fd: fd}, nil
}

func (w *wire) close() { unix.Close(w.fd) }

// message makes a well-formed request; a test may spoil it.
func (w *wire) message(kind uint16, body []byte) []byte {
	w.seq++
	m := binary.LittleEndian.AppendUint16(nil, wireMagic)
	m = binary.LittleEndian.AppendUint16(m, kind)
	m = binary.LittleEndian.AppendUint32(m, uint32(headerSize+len(body)))
	m = binary.LittleEndian.AppendUint64(m, w.seq)
	m = append(m, make([]byte, 8)...) // code, fds, zero
	return append(m, body...)
}

func (w *wire) send(datagram []byte) error {
	for {
		if err := unix.Sendto(w.fd, datagram, unix.MSG_NOSIGNAL, nil); err != unix.EINTR {
			return err
		}
	}
}

// receive returns the next message's type, code, body and descriptors.
func (w *wire) receive() (kind uint16, code uint32, body []byte, fds []int, err error) {
	data, oob := make([]byte, 65536), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, err := 0, 0, error(unix.EINTR)
	for err == unix.EINTR { // a receive with a time limit is not restarted after a signal
		n, oobn, _, _, err = unix.Recvmsg(w.fd, data, oob, unix.MSG_CMSG_CLOEXEC)
	}

	switch {
	case err == nil && n == 0, errors.Is(err, unix.ECONNRESET):
		return 0, 0, nil, nil, errHungUp
	case err != nil:
		return 0, 0, nil, nil, fmt.Errorf("receive: %w", err)
	case n < headerSize:
		return 0, 0, nil, nil, fmt.Errorf("a message of %d bytes", n)
	}

	if oobn > 0 {
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return 0, 0, nil, nil, err
		}
		for _, m := range messages {
			if got, err := unix.ParseUnixRights(&m); err == nil {
				fds = append(fds, got...)
			}
		}
	}

	kind = binary.LittleEndian.Uint16(data[2:])
	code = binary.LittleEndian.Uint32(data[16:])
	return kind, code, data[headerSize:n], fds, nil
}

// call sends one request and returns its reply.
func (w *wire) call(kind uint16, body []byte) (code uint32, reply []byte, fds []int, err error) {
	if err := w.send(w.message(kind, body)); err != nil {
		return 0, nil, nil, err
	}
	got, code, reply, fds, err := w.receive()
	if err == nil && got != kind|replyBit {
		err = fmt.Errorf("a reply of type %#x to a request of type %d", got, kind)
	}
	return code, reply, fds, err
}

// hungUp reads until the peer closes the socket and returns the code of the last
// reply before that.
func (w *wire) hungUp() (code uint32, err error) {
	for {
		_, last, _, fds, err := w.receive()
		for _, fd := range fds {
			unix.Close(fd)
		}
		if errors.Is(err, errHungUp) {
			return code, nil
		}
		if err != nil {
			return code, err
		}
		code = last
	}
}

func u32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func u64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
