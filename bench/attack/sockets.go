package attack

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/wire"
	"capgpu/control"
	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// patience is the time that an attacker waits for an answer that need not come.
const patience = 300 * time.Millisecond

// awaitClose reads until the other side closes, and counts that as the answer.
func (a *attacker) awaitClose(fd int) {
	tv := unix.NsecToTimeval(int64(patience))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	answered := false
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && answered:
			a.tally.Answers["answered, and kept"]++
		case err == unix.EAGAIN:
			a.tally.Answers["kept, without an answer"]++
		case n > 0:
			answered = true
			continue
		case answered:
			a.tally.Answers["answered, and closed"]++
		default:
			a.tally.Answers["closed"]++
		}

		a.tally.Attempts++
		return
	}
}

// garbage sends meaningless bytes to each socket.
func garbage(ctx context.Context, a *attacker) error {
	for i := 0; i < 20 && ctx.Err() == nil; i++ {
		b := make([]byte, 1+a.random.IntN(5000))
		for j := range b {
			b[j] = byte(a.random.Uint32())
		}

		if a.random.IntN(2) == 0 { // the header of a message, followed by garbage
			copy(b, []byte{0x43, 0x47})
		}
		if err := a.send(a.socket, unix.SOCK_SEQPACKET, b); err != nil {
			a.answered(err)
		}

		s, err := a.openRaw(ctx) // the control socket is the next surface
		if err != nil {
			return err
		}

		_, err = s.Call(ctx, control.MsgType(32+a.random.IntN(24)), b[:min(len(b), 1024)], nil)
		a.answered(err)
		_ = s.Close()
		if i%10 == 0 { // a gate is a process
			if err := a.send(a.capnp, unix.SOCK_STREAM, b); err != nil {
				a.answered(err)
			}
		}
	}
	return nil
}

// send sends bytes on a fresh connection and receives the answer.
func (a *attacker) send(path string, kind int, b []byte) error {
	fd, err := wire.Connect(path, kind)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, b); err != nil && err != unix.EPIPE && err != unix.ECONNRESET {
		return err
	}
	if kind == unix.SOCK_STREAM {
		_ = unix.Shutdown(fd, unix.SHUT_WR)
	}
	a.awaitClose(fd)
	return nil
}

// halfOpen connects, and sends nothing or only the beginning of something.
func halfOpen(ctx context.Context, a *attacker) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()

	for i := 0; i < 100 && ctx.Err() == nil; i++ {
		path, kind := a.socket, unix.SOCK_SEQPACKET
		if i%10 == 9 {
			path, kind = a.capnp, unix.SOCK_STREAM
		}

		fd, err := wire.Connect(path, kind)
		a.answered(err)
		if err != nil {
			continue
		}

		fds = append(fds, fd)
		if i%3 == 0 {
			_, _ = unix.Write(fd, make([]byte, 1+i%7))
		}
		if i%5 == 0 {
			_ = unix.Shutdown(fd, unix.SHUT_RD)
		}
	}

	if len(fds) > 0 { // the last answer tells how many were too many
		a.awaitClose(fds[len(fds)-1])
	}

	return nil
}

// descriptorsOnce is the maximum of one message (SCM_MAX_FD).
const descriptorsOnce = 253

// descriptors sends as many open files as the kernel allows, to each socket.
func descriptors(ctx context.Context, a *attacker) error {
	file, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	defer file.Close()

	many := make([]int, descriptorsOnce)
	for i := range many {
		many[i] = int(file.Fd())
	}

	rights := unix.UnixRights(many...)
	header := make([]byte, control.HeaderBytes)
	for _, of := range []struct {
		path string
		kind int
	}{{a.socket, unix.SOCK_SEQPACKET}, {a.socket, unix.SOCK_SEQPACKET}, {a.capnp, unix.SOCK_STREAM}} {
		fd, err := wire.Connect(of.path, of.kind)
		if err != nil {
			a.answered(err)
			continue
		}
		for range 4 {
			if err = unix.Sendmsg(fd, header, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
				break
			}
		}
		if err != nil {
			a.answered(err)
		}
		a.awaitClose(fd)
		_ = unix.Close(fd)
	}

	ours, theirs, err := shm.Socketpair() // a session request with descriptors
	if err != nil {
		return err
	}

	_ = unix.Close(ours)
	defer unix.Close(theirs)
	s, err := a.openRaw(ctx)
	if err != nil {
		return err
	}
	defer s.Close()

	_, err = s.Call(ctx, control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil), []int{theirs})
	a.answered(err)
	return nil
}

// bombsInHex are messages that crash parsers: a call on its own answer, a composite
// list that contains itself, a disembargo of nothing, a list of more elements than
// there are bytes, a message of more segments than fit, and far pointers in a
// circle.
var bombsInHex = []string{
	"00000000100000000000000001000100020000000000000000000000030003000000000000000000000000000000000000000000000000000800000001000100180000000000020000000000000000000000000001000000000000000100010000000000000000000100000007000000000000000100000000000000000000000000000000000000",
	"000000000500000000000000010001000c00000000000000010000000f0000000400000000000100f9ffffff0f000000",
	"000000000b00000000000000010001000d00000000000000000000000100020000000000000000000400000001000100000000000000000000000000010000000000000001000100010000000000000001000000070000000000000001000000",
	"0000000002000000" + "0100000007ffffff" + "0000000000000000",
	"ffffffff" + "01000000",
	"feffff7f" + "ffffff7f",
	"0100000001000000010000000000000002000000010000000200000000000000",
	"00000000ffffffff",
	"0000000003000000" + "0100000000000000" + "fdffffff07000000" + "f9ffffff0f000000",
}

// bombs sends each of them to a gate, after a valid beginning and without.
func bombs(ctx context.Context, a *attacker) error {
	for _, text := range bombsInHex {
		b, err := hex.DecodeString(text)
		if err != nil {
			return err
		}
		if a.random.IntN(2) == 0 {
			b = append(rpcguardtest.Bootstrap(0), b...)
		}
		if err := a.send(a.capnp, unix.SOCK_STREAM, b); err != nil {
			a.answered(err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return a.nested(ctx)
}

// nested sends the most bytes that a gate may read of a client without a valid
// message: lists that all point at the same list.
func (a *attacker) nested(context.Context) error {
	const words = 4096
	b := make([]byte, 8+8*words)
	b[4], b[5] = byte(words&0xff), byte(words>>8)
	for i := range words {
		at := 8 + 8*i
		// A list pointer to the next word, of pointers, as long as possible.
		b[at] = 1
		b[at+4], b[at+5], b[at+6], b[at+7] = 6, 0xff, 0xff, 0
	}
	return a.send(a.capnp, unix.SOCK_STREAM, b)
}

// conversations holds random conversations, half of which break no rule of the
// protocol.
func conversations(ctx context.Context, a *attacker) error {
	const m, p, s = schema.GpuMemorySession_TypeID, schema.GpuProgramSession_TypeID, schema.GpuSession_TypeID
	g := rpcguardtest.NewGenerator(rpcguardtest.Config{
		Schema: rpcguardtest.LoadSchema(schema.RegisterSchema, schema.GpuSession_TypeID),
		Root:   schema.GpuDeviceManager_TypeID,
		Prelude: []rpcguardtest.Call{
			{Interface: schema.GpuDeviceManager_TypeID, Method: 1},
			{Interface: m, Method: 0}, {Interface: m, Method: 0}, {Interface: m, Method: 4},
			{Interface: p, Method: 0}, {Interface: s, Method: 3},
		},
		Numbers: map[string][]uint64{
			"capabilityIndex": {0}, "bytes": {1, 4096, 8192, 1 << 20}, "buffer": {1, 2, 3, 4}, "fence": {3, 4}, "value": {1, 2, 3},
			"timeoutNanos": {0, 1000}, "deadlineMicros": {1, 1000}, "entries": {2, 16},
		},
	}, rand.New(rand.NewPCG(a.random.Uint64(), 0)))

	for range 10 {
		stream, sound := g.Stream()
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.capnp, Net: "unix"})
		if err != nil {
			a.answered(err)
			continue
		}

		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = c.Write(stream)
		_ = c.CloseWrite()
		n, b := 0, make([]byte, 64<<10)
		for err == nil {
			var more int
			more, err = c.Read(b)
			n += more
		}

		_ = c.Close()
		switch {
		case n == 0:
			a.tally.Answers["closed"]++
		case sound:
			a.tally.Answers["answered (sound)"]++
		default:
			a.tally.Answers["answered, and closed"]++
		}

		a.tally.Attempts++
		if ctx.Err() != nil {
			return nil
		}
	}

	return nil
}
