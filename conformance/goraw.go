package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
)

// RawGo sends a datagram on a tenant socket, and waits until the service closes it.
func RawGo(ctx context.Context, socket string, datagram []byte) error {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	return awaitHangUp(ctx, nc, datagram)
}

// awaitHangUp writes, and reads until the peer ends the connection.
func awaitHangUp(ctx context.Context, nc net.Conn, text []byte) error {
	deadline, _ := ctx.Deadline()
	if err := nc.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := nc.Write(text); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}

	buf := make([]byte, 64<<10)
	for {
		n, err := nc.Read(buf)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return fmt.Errorf("the service keeps a connection that broke its protocol: %w", err)
		}
		if err != nil || n == 0 {
			return nil
		}
	}
}

// FloodGo is Stack.Flood on a control socket: it sends requests one after the
// other, and reads no reply until all are sent or no more are accepted.
func FloodGo(ctx context.Context, socket string, n int, paused func()) (answered, refused int, err error) {
	fd, _, err := openRaw(ctx, socket, 0)
	if err != nil {
		return 0, 0, err
	}

	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()

	sent := make(chan error, 1)
	stuck, cancel := context.WithCancel(ctx)
	defer cancel()
	progress := make(chan struct{}, 1)
	go func() {
		for i := range n {
			m := &control.Message{Type: control.TypeDescribe, Seq: uint64(i + 1)}
			if err := conn.Send(stuck, m); err != nil {
				sent <- err
				return
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		sent <- nil
	}()

	// The service has reached its limit when it accepts nothing more for a while.
	for quiet := false; !quiet; {
		select {
		case <-progress:
		case err := <-sent:
			sent <- err
			quiet = true
		case <-time.After(quietTime):
			quiet = true
		}
	}

	paused()
	for answered+refused < n {
		m, err := conn.Recv()
		if err != nil {
			return answered, refused, err
		}
		if m.Code != 0 {
			refused++
		} else {
			answered++
		}
		m.CloseFDs()
	}

	return answered, refused, <-sent
}

// quietTime is the time without a change after which a count is final.
const quietTime = 300 * time.Millisecond

// awaitQuiet returns when a count has not changed for quietTime.
func awaitQuiet(ctx context.Context, count func() uint64) {
	last, since := count(), time.Now()
	for time.Since(since) < quietTime && ctx.Err() == nil {
		time.Sleep(quietTime / 10)
		if now := count(); now != last {
			last, since = now, time.Now()
		}
	}
}
