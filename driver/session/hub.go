package session

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
)

// Hub is the set of served sessions. It can pause all of them between two requests,
// and resume them in this process or in another one. The zero value is empty.
type Hub struct {
	mu sync.Mutex
	// +checklocks:mu
	served map[uint64]*session // by core.ID
}

// State is everything that another process needs to continue one served session,
// besides its socket.
type State struct {
	ID     uint64
	Parent uint64 // 0: not restricted
	Asked  []control.Asked
}

// Serve serves one session as a member of the Hub.
func (h *Hub) Serve(ctx context.Context, conn *control.Conn, core *gpu.Session) error {
	return h.open(ctx, conn, core).run()
}

// open adds a session to the Hub. It stays a member until run has returned.
func (h *Hub) open(ctx context.Context, conn *control.Conn, core *gpu.Session, asked ...control.Asked) *session {
	s := &session{hub: h, core: core, facet: core.Describe().Facet, ctx: ctx}
	s.own, s.cancel = context.WithCancelCause(ctx)
	s.serving = control.NewServing(s.own, conn, s.handle, asked...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.served == nil {
		h.served = map[uint64]*session{}
	}
	h.served[core.ID()] = s
	return s
}

func (h *Hub) forget(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.served, s.core.ID())
}

func (h *Hub) all() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*session, 0, len(h.served))
	for _, s := range h.served {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.core.ID(), b.core.ID()) })
	return list
}

// waitsByNature reports whether a request may wait for ever, so that Pause does not
// wait for it.
func waitsByNature(t control.MsgType) bool {
	return t == control.TypeFenceWait || t == control.TypeAwaitEnd
}

// endingPoll is the interval at which Pause looks for ended sessions.
const endingPoll = time.Millisecond

// Socket is the socket of a paused session.
type Socket struct{ s *session }

// Dup returns a duplicate, which the caller owns.
func (s Socket) Dup() (fd int, err error) { return s.s.serving.FD() }

// Pause stops all sessions or none. It returns each session's unanswered requests
// and its socket. Meanwhile only requests that are already being served can open a
// session. Pause waits for a session that is ending, but cuts its linger time
// short. A *gpu.Blocked names the sessions that did not answer their requests in
// time.
func (h *Hub) Pause(ctx context.Context) (states []State, sockets []Socket, err error) {
	paused := map[*session][]control.Asked{}
	defer func() {
		if err == nil {
			return
		}
		for s := range paused {
			s.serving.Resume()
		}
	}()

	for {
		still, err := h.pauseOnce(ctx, paused)
		if err != nil {
			return nil, nil, err
		}
		if still {
			break
		}
		select {
		case <-time.After(endingPoll):
		case <-ctx.Done():
			return nil, nil, gpuerr.New(gpuerr.Busy, "sessions are ending; try again")
		}
	}

	for _, s := range h.all() {
		sockets = append(sockets, Socket{s})
		states = append(states, State{ID: s.core.ID(), Parent: s.core.ParentID(), Asked: stillAsked(paused[s])})
	}

	return states, sockets, nil
}

// pauseOnce pauses all sessions that are not paused, in parallel so that none waits
// for another. still is true when there was no such session and none is ending.
func (h *Hub) pauseOnce(ctx context.Context, paused map[*session][]control.Asked) (still bool, err error) {
	type stopped struct {
		*session
		asked []control.Asked
		err   error
	}

	still = true
	var moving []uint64
	stops, n := make(chan stopped), 0
	for _, s := range h.all() {
		if _, is := paused[s]; is {
			select {
			case <-s.core.Done():
				still = false
				s.cancel(s.core.Err())
			default:
			}
			continue
		}
		n++
		go func() {
			asked, err := s.serving.Pause(ctx, waitsByNature)
			stops <- stopped{s, asked, err}
		}()
	}

	for range n {
		s := <-stops
		switch {
		case s.err == nil:
			paused[s.session] = s.asked
		case !errors.Is(s.err, control.ErrEnding):
			err = s.err
			moving = append(moving, s.core.ID())
		}
	}

	if err != nil {
		err = gpu.NewBlocked(err, moving)
	}

	return still && n == 0, err
}

// stillAsked subtracts from each FenceWait's timeout the time that it has waited.
func stillAsked(asked []control.Asked) []control.Asked {
	for i := range asked {
		a := &asked[i]
		if a.Type != control.TypeFenceWait {
			continue
		}
		if req, err := control.ParseFenceWaitRequest(a.Body); err == nil {
			timeout := time.Duration(min(req.TimeoutNanos, math.MaxInt64))
			req.TimeoutNanos = uint64(max(timeout-a.For, 0))
			a.Body = req.AppendTo(nil)
		}
	}
	return asked
}

// Resume resumes all sessions.
func (h *Hub) Resume() {
	for _, s := range h.all() {
		s.serving.Resume()
	}
}

// Adopted is a set of sessions that another process has served and this one does
// not serve yet.
type Adopted struct {
	top   []*session
	below map[*session][]*session
}

// Adopt takes over the sessions that another Hub's Pause returned, parents before
// children. It owns the sockets, also when it fails. core finds a session by its
// ID.
func (h *Hub) Adopt(ctx context.Context, states []State, sockets []int, core func(id uint64) *gpu.Session) (_ *Adopted, err error) {
	a := &Adopted{below: map[*session][]*session{}}
	byID := map[uint64]*session{}
	defer func() {
		for _, fd := range sockets {
			unix.Close(fd)
		}
	}()

	if len(states) != len(sockets) {
		return nil, gpuerr.New(gpuerr.Protocol, "%d sessions have %d sockets", len(states), len(sockets))
	}

	last := uint64(0)
	for _, st := range states {
		c := core(st.ID)
		if c == nil || st.ID <= last || c.ParentID() != st.Parent || len(st.Asked) > control.MaxInFlight {
			return nil, gpuerr.New(gpuerr.Protocol, "a socket of session %d, which is not there", st.ID)
		}

		conn, err := control.NewConn(sockets[0], control.ConnOptions{})
		sockets, last = sockets[1:], st.ID
		if err != nil {
			return nil, err
		}

		for _, q := range st.Asked {
			if !waitsByNature(q.Type) || control.CheckBody(q.Type, false, q.Body) != nil || q.Seq == 0 {
				conn.Close()
				return nil, gpuerr.New(gpuerr.Protocol, "session %d is asked %v", st.ID, q.Type)
			}
		}

		s := h.open(ctx, conn, c, st.Asked...)
		byID[st.ID] = s
		if above := byID[st.Parent]; above != nil {
			a.below[above] = append(a.below[above], s)
		} else {
			a.top = append(a.top, s)
		}
	}

	return a, nil
}

// Start serves the adopted sessions. It calls each for every session without a
// parent that is served here; the caller runs it in a goroutine. Every other
// session ends with its parent.
func (a *Adopted) Start(each func(run func() error)) {
	for _, s := range a.top {
		a.startBelow(s)
		each(s.run)
	}
}

func (a *Adopted) startBelow(s *session) {
	for _, child := range a.below[s] {
		a.startBelow(child)
		s.children.Go(func() { _ = child.run() })
	}
}
