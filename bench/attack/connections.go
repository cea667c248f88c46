package attack

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/wire"
	"capgpu/control"
	"capgpu/internal/rpcguard/rpcguardtest"
)

// stormWorkers is the number of threads that connect and hang up.
const stormWorkers = 8

// connectStorm connects and hangs up as fast as it can: to the Cap'n Proto socket
// after the first answer, to the tenant socket after its hello, and to both without
// a message.
func connectStorm(ctx context.Context, a *attacker) error {
	var storm sync.WaitGroup
	answers := make(chan string)
	for i := range stormWorkers {
		storm.Go(func() {
			for n := 0; ctx.Err() == nil || n == 0; n++ {
				switch {
				case i >= stormWorkers-1: // not a word
					answers <- connectOnce(a.capnp, unix.SOCK_STREAM, nil)
				case i >= stormWorkers-3:
					answers <- connectOnce(a.socket, unix.SOCK_SEQPACKET, helloMessage)
				default:
					answers <- connectOnce(a.capnp, unix.SOCK_STREAM, rpcguardtest.Bootstrap(0))
				}
			}
		})
	}

	go func() {
		storm.Wait()
		close(answers)
	}()

	for answer := range answers {
		a.tally.Attempts++
		a.tally.Answers[answer]++
	}

	return nil
}

// helloMessage is a Hello as it lies on the wire: header, and version.
var helloMessage = []byte{
	0x43, 0x47, byte(control.TypeHello), 0, control.HeaderBytes + 4, 0, 0, 0,
	1, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0,
	control.HelloVersion, 0, 0, 0,
}

// connectOnce connects, sends something, receives the first answer, and hangs up.
func connectOnce(path string, kind int, say []byte) (answer string) {
	fd, err := wire.Connect(path, kind)
	if err != nil {
		return answerOf(err)
	}
	defer unix.Close(fd)

	if say == nil {
		return "hung up"
	}
	if _, err := unix.Write(fd, say); err != nil {
		return answerOf(err)
	}

	tv := unix.NsecToTimeval(int64(longest))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	for err == unix.EINTR {
		n, err = unix.Read(fd, b)
	}

	switch {
	case err != nil:
		return answerOf(err)
	case n == 0:
		return "closed"
	}

	for _, code := range []string{"E_BUSY", "E_QUOTA"} {
		if strings.Contains(string(b[:n]), code) {
			return code
		}
	}

	return "answered"
}

// idleSeats takes all of a tenant's connections and sends nothing on them, or half
// a message, or requests a capability that it never uses, until they are taken from
// it.
func idleSeats(_ context.Context, a *attacker) error {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()

	for i := range 3 * seats {
		path, kind, say := a.socket, unix.SOCK_SEQPACKET, []byte(nil)
		switch i % 3 {
		case 1:
			path, kind, say = a.capnp, unix.SOCK_STREAM, rpcguardtest.Bootstrap(0)
		case 2:
			path, kind, say = a.capnp, unix.SOCK_STREAM, rpcguardtest.Bootstrap(0)[:12]
		}

		fd, err := wire.Connect(path, kind)
		if err != nil {
			a.answered(err)
			continue
		}

		fds = append(fds, fd)
		if say == nil {
			continue
		}
		if _, err := unix.Write(fd, say); err != nil {
			a.answered(err)
		}
	}

	// Each of them ends, whichever it is, without a message from here.
	end := time.Now().Add(longest)
	for _, fd := range fds {
		a.tally.Attempts++
		if awaitEnd(fd, time.Until(end)) {
			a.tally.Answers["ended"]++
		} else {
			a.tally.Answers[kept]++
		}
	}

	return nil
}

// seats is the number of connections of the attacker's tenant
// (service.Options.Neighbours).
const seats = 8

// awaitEnd reads until the other side closes.
func awaitEnd(fd int, longest time.Duration) (ended bool) {
	tv := unix.NsecToTimeval(max(int64(longest), int64(time.Millisecond)))
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	for b := make([]byte, 4096); ; {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR || n > 0:
		case err == unix.EAGAIN:
			return false
		default:
			return true
		}
	}
}
