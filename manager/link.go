package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
)

// driverLink is one driver process with both links to it.
//
// It ends when one of its parts does: the process exits, the supervision link dies, the grant
// link dies or breaks the protocol, a ping goes unanswered, or the manager has a reason of
// its own (epochFailure). The first of these ends the others. end() waits for all of them,
// for a bounded time: a process that the kernel cannot end (a thread of it sleeps in a system
// call that never returns) must not keep its grants.
type driverLink struct {
	epoch   uint64
	holder  *holder // nil for the epoch's first driver
	child   *child
	checked bool // the child is known to be confined
	caller  peer
	gate    *rpcguard.Gate // of the grants

	sessions *openSessions // attached to this driver
	failure  *epochFailure // of its grants
	// settle returns when the driver knows of every fault of its device so far. It returns
	// for how long no report can be missing.
	settle func(context.Context) (time.Duration, error)

	// escalate publishes the driver's level of recovery. escalating is held meanwhile, which
	// bounds how often it is called.
	escalate   func(*driverLink, escalation)
	escalating chan struct{}
	// incidents counts those of the epoch's earlier drivers. Guarded by the board's mu.
	incidents uint64

	ready chan control.ReadyRequest // holds the one Ready

	grantsDone chan struct{} // closed when no grant call runs any more
	grantsErr  error         // read after grantsDone

	pings atomic.Uint64 // answered
	// short publishes which resource the driver has run out of (short.go).
	short      func(l *driverLink, what string)
	shortPings int // in a row; used by runPings
}

func (l *driverLink) runGrants(s *grantServer, conn *net.UnixConn) {
	defer close(l.grantsDone)
	l.grantsErr = s.serve(conn)
}

// handle answers a driver's requests: one Ready, SettleFaults and Recovery.
func (l *driverLink) handle(ctx context.Context, m *control.Message) *control.Message {
	defer m.CloseFDs()
	switch m.Type {
	case control.TypeReady:
	case control.TypeSettleFaults:
		complete, err := l.settle(ctx)
		if err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, control.SettleFaultsReply{CompleteNanos: uint64(complete)}.AppendTo(nil))
	case control.TypeRecovery:
		if err := l.takeRecovery(ctx, m.Body); err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, nil)
	default:
		return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v is no message of a driver", m.Type))
	}

	req, err := control.ParseReadyRequest(m.Body)
	if err != nil {
		return control.ErrorReply(m, err)
	}
	if req.Epoch != l.epoch {
		return control.ErrorReply(m, gpuerr.New(gpuerr.Protocol, "epoch: %d; this driver is of epoch %d", req.Epoch, l.epoch))
	}

	select {
	case l.ready <- req:
		return control.NewReply(m, nil)
	default:
		return control.ErrorReply(m, gpuerr.New(gpuerr.Protocol, "Ready was said before"))
	}
}

// watch returns when the driver has ended, with the reason. It pings once the driver is
// ready.
func (l *driverLink) watch(ctx context.Context, interval, timeout time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	var pinging sync.WaitGroup
	defer pinging.Wait()
	defer cancel()
	silent := make(chan error, 1)
	pinging.Go(func() { silent <- l.runPings(ctx, interval, timeout) })
	select {
	case <-l.child.exited:
		return fmt.Errorf("the driver died: %w", l.child.err)
	case <-l.caller.Done():
		return l.exitedOr(fmt.Errorf("the driver's supervision link failed: %w", l.caller.Err()))
	case <-l.grantsDone:
		return l.exitedOr(fmt.Errorf("the driver's grant link ended: %w", orClosed(l.grantsErr)))
	case err := <-l.failure.cause:
		return err
	case err := <-silent:
		return err
	}
}

// exitGrace is how long the exit of a process may follow the end of its links.
const exitGrace = time.Second

// exitedOr returns the exit of the process as the reason if there is one: it tells more.
func (l *driverLink) exitedOr(err error) error {
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-l.child.exited:
		return fmt.Errorf("the driver died: %w", l.child.err)
	case <-timer.C:
		return err
	}
}

func orClosed(err error) error {
	if err == nil {
		return errors.New("closed by the driver")
	}
	return err
}

// standstill is a delay that a busy machine hardly causes. If the manager notices a timeout so
// much too late, it was stopped itself, or its virtual machine was. The driver is not blamed
// for such a silence, up to maxStills times in a row.
const (
	standstill = 500 * time.Millisecond
	maxStills  = 8
)

// runPings returns when a ping was not answered in time, or ctx ends.
func (l *driverLink) runPings(ctx context.Context, interval, timeout time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	stood := 0
	for {
		began := time.Now()
		pingCtx, cancel := context.WithTimeout(ctx, timeout)
		_, err := l.call(pingCtx, control.TypePing, nil, nil)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) && time.Since(began) > timeout+standstill && stood < maxStills:
			stood++ // the manager stood still, and the driver may have: ask again
			continue
		case errors.Is(err, context.DeadlineExceeded):
			return errSilent(timeout)
		case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.Closed), errors.Is(err, gpuerr.Protocol): // the link ends, too
		default:
			l.pings.Add(1)
			stood = 0
			if err := l.answered(err); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end ends the process and closes both links. A driver that has answered Shutdown (politely)
// gets a moment to exit by itself; any other is killed. When end returns nil, nothing of the
// driver runs, neither its code nor a call of it. Otherwise it returns a *remains, patience
// after the kill.
func (l *driverLink) end(log *slog.Logger, politely bool, patience time.Duration) error {
	closed := make(chan struct{})
	closeLink := sync.OnceFunc(func() {
		go func() {
			defer close(closed)
			if err := l.caller.Close(); err != nil {
				log.Warn("close the supervision link", "err", err)
			}
		}()
	})
	if politely {
		closeLink()
		timer := time.NewTimer(goodbyeGrace)
		select {
		case <-l.child.exited:
		case <-timer.C:
		}
		timer.Stop()
	}

	l.child.kill()
	closeLink()
	r := remains{patience: patience}
	grace := newGrace(patience)
	if !grace.wait(l.child.exited) {
		r.parts = append(r.parts, fmt.Sprintf("its process %d cannot be reaped", l.child.pid()))
	}

	l.gate.Revoke(errGrantsRevoked)
	r.grantsRun = !grace.wait(l.grantsDone)
	if r.grantsRun {
		r.parts = append(r.parts, "a call of it still runs")
	}
	if !grace.wait(closed) {
		r.parts = append(r.parts, "its supervision link cannot be closed")
	}
	if r.parts != nil {
		return &r
	}

	return nil
}

const (
	// goodbyeGrace is how long a driver may take to exit once its links are down.
	goodbyeGrace = time.Second
	// stopPatience is how long a killed driver may take to exit when the manager stops; at
	// other times it is Config.ReapTimeout.
	stopPatience = 3 * time.Second
)

// remains is the part of a driver that could not be ended.
type remains struct {
	parts     []string
	grantsRun bool // its register windows have to stay
	patience  time.Duration
}

func (r *remains) Error() string {
	return fmt.Sprintf("the driver was killed, and %s after %v", strings.Join(r.parts, ", "), r.patience)
}

// streamPair returns two connected STREAM sockets: ours polled, theirs a bare descriptor.
func streamPair() (ours *net.UnixConn, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, gpuerr.New(gpuerr.IO, "make a socket pair: %v", err)
	}
	control.RefuseDescriptors(fds[0])
	f := os.NewFile(uintptr(fds[0]), "grant link")
	c, err := net.FileConn(f) // duplicates
	f.Close()
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, gpuerr.New(gpuerr.IO, "poll a socket: %v", err)
	}
	return c.(*net.UnixConn), fds[1], nil
}
