package session

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// restrict makes a weaker session and serves it on a socket of its own. The answer
// carries the other end of that socket.
func (s *session) restrict(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseRestrictRequest(m.Body)
	if err != nil {
		return nil, err
	}

	child, err := s.core.Restrict(gpu.Policy{
		Facet:       gpu.Facet(req.Facet),
		MaxDeadline: time.Duration(min(req.MaxDeadlineNanos, 1<<63-1)),
		Limits:      limitsOf(req.Limits),
		Programs:    req.Programs,
		Check:       req.Check,
	})
	if err != nil {
		return nil, err
	}

	ours, theirs, err := shm.Socketpair()
	if err != nil {
		child.Close()
		return nil, err
	}

	conn, err := control.NewConn(ours, control.ConnOptions{})
	if err != nil {
		unix.Close(theirs)
		child.Close()
		return nil, err
	}

	served := s.hub.open(s.ctx, conn, child)
	s.children.Go(func() {
		// The session's own peer learns why it ended; there is nobody else to
		// inform.
		_ = served.run()
	})

	return control.NewReply(m, nil, theirs), nil
}

// close answers when nothing of the session is accepted or runs any more. The
// answer is the last message.
func (s *session) close(_ context.Context, m *control.Message) (*control.Message, error) {
	s.closing.Store(true)
	reply, err := done(m, s.core.Close())
	if err != nil {
		reply = errorReply(m, err)
	}
	reply.Last = true
	return reply, nil
}

// ended returns why the session, which has ended, did so.
func (s *session) ended() error {
	cause := s.core.Err()
	if s.closing.Load() || cause != nil && gpuerr.CodeOf(cause) != gpuerr.Closed {
		return cause
	}
	// The end did not come from this socket: another party closed the session.
	if s.ctx.Err() != nil {
		// All sessions end, and the parent may have been first.
		return errStopped()
	}
	return gpuerr.New(gpuerr.Revoked, "the session, or the one it was restricted from, was closed by another")
}

// errStopped is the answer to peers of a driver that has stopped serving.
func errStopped() error { return gpuerr.New(gpuerr.Disconnected, "the driver ends the connection") }

// awaitEnd answers with the reason when the session ends.
func (s *session) awaitEnd(ctx context.Context, m *control.Message) (*control.Message, error) {
	if s.awaited.Swap(true) {
		return nil, gpuerr.New(gpuerr.Busy, "an AwaitEnd of this socket waits already")
	}

	select {
	case <-s.core.Done():
	case <-ctx.Done():
		select {
		case <-s.core.Done(): // which says why
		default:
			return nil, errStopped()
		}
	}

	if s.closing.Load() {
		return control.NewReply(m, nil), nil
	}

	reply := errorReply(m, s.ended())
	reply.Last = true
	return reply, nil
}
