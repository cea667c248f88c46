// Package session binds a session of the core to a control socket: it answers the
// session messages of docs/wire.md for one gpu.Session.
//
// Trust: the core and the driver's own memory are trusted, the peer is not. Package
// control has parsed every message strictly and bounded how many are served at once
// (64); this package checks each one against the session's facet, turns it into one
// call of the core, and answers it. The core checks handles, sizes and quotas. A
// descriptor in a reply is a duplicate, which the core made while the object could
// not be released. No descriptor is accepted.
//
// The socket is the session. Serve ends when the peer or the session is gone,
// whichever comes first. It returns when nothing of either is served or runs any
// more, including the sessions restricted from it: no descriptor and no goroutine
// remain. The core reclaims the session's objects afterwards.
package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// session is one served session.
type session struct {
	hub     *Hub
	core    *gpu.Session
	facet   gpu.Facet
	ctx     context.Context // of the restricted sessions; ends when serving ends
	own     context.Context // of this one; cancel ends it
	cancel  context.CancelCauseFunc
	serving *control.Serving

	// Only a few requests may wait for ever, so that the service never stops
	// reading for good. An unread message can carry a descriptor of this very
	// socket, which would keep the socket and with it the session alive.
	waits   atomic.Int32 // FenceWaits
	awaited atomic.Bool  // an AwaitEnd came
	// closing is set once the peer itself has asked for the end (Close).
	closing  atomic.Bool
	children sync.WaitGroup
}

// maxFenceWaits is the number of FenceWaits that one socket may have waiting at
// once.
const maxFenceWaits = 32

// Serve serves core on conn until the peer is gone or the session ends. conn
// accepts no descriptors. Serve owns both, and both are closed when it returns. The
// error is nil when the peer left or closed the session; otherwise it is the reason
// of the session's end.
func Serve(ctx context.Context, conn *control.Conn, core *gpu.Session) error {
	return (&Hub{}).Serve(ctx, conn, core)
}

// run serves the session to its end.
func (s *session) run() error {
	defer s.hub.forget(s)
	core, ctx, cancel := s.core, s.own, s.cancel

	// A peer that awaits the end learns of it from the answer to AwaitEnd, which is
	// the last message. A peer that does not await it, or not yet, is served a
	// little longer, so that it can learn the reason before its socket closes.
	var ending sync.WaitGroup
	ending.Go(func() {
		select {
		case <-core.Done():
		case <-ctx.Done():
			return
		}
		linger := time.NewTimer(lingerTime)
		defer linger.Stop()
		select {
		case <-linger.C:
			if !s.closing.Load() {
				cancel(core.Err())
			}
		case <-ctx.Done():
		}
	})

	err := s.serving.Run()
	cancel(errServed)
	ending.Wait()
	if closeErr := core.Close(); err == nil && !s.closing.Load() {
		err = closeErr
	}

	s.children.Wait()
	return err
}

// lingerTime limits how long the socket of an ended session stays open for a peer
// that has not asked for the reason.
const lingerTime = time.Second

// errServed cancels a session's work when its socket is closed.
var errServed = errors.New("the control socket is closed")

// serve answers one request.
type serve func(ctx context.Context, m *control.Message) (*control.Message, error)

// route is the table of a session's requests: the handler of each, and the least
// facet that may call it. A nil serve means that the message does not belong on
// this socket.
func (s *session) route(t control.MsgType) (gpu.Facet, serve) {
	switch t {
	case control.TypeDescribe:
		return gpu.FacetMemory, s.describe

	case control.TypeBudget:
		return gpu.FacetMemory, s.budget
	case control.TypeCreateBuffer:
		return gpu.FacetMemory, s.createBuffer

	case control.TypeDestroyBuffer:
		return gpu.FacetMemory, s.destroyBuffer
	case control.TypeCreateFence:
		return gpu.FacetMemory, s.createFence

	case control.TypeDestroyFence:
		return gpu.FacetMemory, s.destroyFence
	case control.TypeFenceState:
		return gpu.FacetMemory, s.fenceState

	case control.TypeFenceWait:
		return gpu.FacetMemory, s.fenceWait
	case control.TypeFenceSignal:
		return gpu.FacetMemory, s.fenceSignal

	case control.TypeOpenProgram:
		return gpu.FacetProgram, s.openProgram
	case control.TypeLoadProgram:
		return gpu.FacetFull, s.loadProgram

	case control.TypeCloseProgram:
		return gpu.FacetProgram, s.closeProgram
	case control.TypeCreateQueue:
		return gpu.FacetMemory, s.createQueue

	case control.TypeCancelQueue:
		return gpu.FacetMemory, s.cancelQueue
	case control.TypeCloseQueue:
		return gpu.FacetMemory, s.closeQueue

	case control.TypeRecordList:
		return gpu.FacetMemory, s.recordList
	case control.TypeCloseList:
		return gpu.FacetMemory, s.closeList

	case control.TypeRestrict:
		return gpu.FacetMemory, s.restrict
	case control.TypeClose:
		return gpu.FacetMemory, s.close

	case control.TypeAwaitEnd:
		return gpu.FacetMemory, s.awaitEnd
	}
	return 0, nil
}

// handle serves one message; it is control.Serve's handler.
func (s *session) handle(ctx context.Context, m *control.Message) *control.Message {
	defer m.CloseFDs()
	least, serve := s.route(m.Type)
	if serve == nil {
		return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v is not a message of the control socket", m.Type))
	}
	if s.facet < least {
		return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v: a %v session does not have it; it takes a %v session", m.Type, s.facet, least))
	}

	returned := func() {}
	if n := m.Type.ReplyFDs(); n > 0 {
		var err error
		if returned, err = s.core.Lend(uint64(n)); err != nil {
			return errorReply(m, err)
		}
	}

	crashpoint.Here("driver.answer.read")
	reply, err := serve(ctx, m)
	crashpoint.Here("driver.answer.made")
	if err != nil {
		reply = errorReply(m, err)
	}

	reply.Closed = returned
	return reply
}

// errorReply gives the peer only texts that were written for it. An error without a
// code may name things of this process.
func errorReply(m *control.Message, err error) *control.Message {
	var typed *gpuerr.Error
	var code gpuerr.Code
	switch {
	case errors.As(err, &typed), errors.As(err, &code):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = gpuerr.New(gpuerr.Busy, "%v: it was given up before it was done", m.Type)
	default:
		err = gpuerr.New(gpuerr.Internal, "%v failed; it had no effect", m.Type)
	}
	return control.ErrorReply(m, err)
}
