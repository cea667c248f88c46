package rpcguard

import (
	"context"
	"errors"
	"net"
	"sync"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"capgpu/gpuerr"
)

// errAborted: the peer has sent Abort.
var errAborted = errors.New("aborted by the peer")

// vat is the server's end of one connection.
//
//	          Call                     the object's method
//	(absent) ──────► parked ─────────► running ───────► returned ──┐ Finish
//	    │               │ target and      │ Return sent            ├──► (absent)
//	    │               │ arguments known │                        │
//	    └── Bootstrap ──┴─ cannot be ─────┴───────► returned ──────┘
//
// A Finish may come before the return; the question then goes when it returns.
type vat struct {
	conn      *net.UnixConn
	limits    Limits
	out       *writer
	room      chan struct{}  // one token: look again whether there is room
	patient   bool           // awaitRoom's: calls may still turn out to be short
	running   sync.WaitGroup // calls given to objects and not yet returned
	ctx       context.Context
	cancel    context.CancelCauseFunc
	bootstrap capnp.Client

	mu sync.Mutex
	// +checklocks:mu
	questions map[uint32]*question
	// +checklocks:mu
	exports map[uint32]*export
	// nextExport ascends: an id that a peer released never names another
	// capability until 2³² later.
	// +checklocks:mu
	nextExport uint32
	// +checklocks:mu
	calls int // not yet returned
	// +checklocks:mu
	callBytes int64
	// +checklocks:mu
	closing bool
	// held are the objects that this vat ever held and that may still be there.
	// +checklocks:mu
	held map[*object]struct{}
	// pruneAt is the size of held at which those that ended are taken out.
	// +checklocks:mu
	pruneAt int
	// later runs after the next unlock: what must not run under mu.
	// +checklocks:mu
	later []func()
}

// export is a capability that the peer holds, or held while calls for it wait.
type export struct {
	id     uint32
	client capnp.Client
	refs   uint32  // the peer's; 0: not in the table
	queue  []*call // calls in order; only the head may wait for its arguments
}

// argument is an entry of a parked call's capability table.
type argument struct {
	call  *call
	index int
	path  []uint16
}

// capPath is where a result struct holds a capability: pointer fields to go
// through, then the index in the capability table.
type capPath struct {
	fields []uint16
	index  int
}

func newVat(conn *net.UnixConn, bootstrap capnp.Client, limits Limits) *vat {
	v := &vat{
		conn: conn, limits: limits, bootstrap: bootstrap,
		room:      make(chan struct{}, 1),
		patient:   true,
		questions: make(map[uint32]*question),
		exports:   make(map[uint32]*export),
		held:      make(map[*object]struct{}),
		pruneAt:   minPruneAt,
	}
	v.hold(objectOf(bootstrap))
	v.ctx, v.cancel = context.WithCancelCause(context.Background())
	v.out = newWriter(conn, limits.WriteTimeout, v.signalRoom, func(err error) {
		v.cancel(gpuerr.New(gpuerr.Disconnected, "the peer does not read: %v", err))
	})
	return v
}

// unlock releases mu and runs the postponed functions.
//
// +checklocksrelease:v.mu
func (v *vat) unlock() {
	later := v.later
	v.later = nil
	v.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// handle does one message of messageBytes.
func (v *vat) handle(m *capnp.Message, messageBytes int64) error {
	root, err := rpccp.ReadRootMessage(m)
	if err != nil {
		return protocolError("a message without a root struct")
	}

	switch root.Which() {
	case rpccp.Message_Which_bootstrap:
		return v.handleBootstrap(root)
	case rpccp.Message_Which_call:
		return v.handleCall(root, messageBytes)
	case rpccp.Message_Which_finish:
		return v.handleFinish(root)
	case rpccp.Message_Which_release:
		return v.handleRelease(root)
	case rpccp.Message_Which_disembargo:
		return v.handleDisembargo(root)
	case rpccp.Message_Which_abort:
		return errAborted
	case rpccp.Message_Which_unimplemented:
		return nil
	default:
		return protocolError("message type %d is not served", root.Which())
	}
}

func (v *vat) handleBootstrap(root rpccp.Message) error {
	b, err := root.Bootstrap()
	if err != nil {
		return protocolError("bootstrap: %v", err)
	}

	v.mu.Lock()
	defer v.unlock()
	q := &question{id: b.QuestionId(), returned: true, paths: []capPath{{}}}
	if err := v.addQuestionLocked(q); err != nil {
		return err
	}

	if len(v.exports) >= v.limits.MaxExports {
		q.err = exceptionOf(gpuerr.New(gpuerr.Busy, "%d capabilities are held; release some", len(v.exports)))
		v.laterLocked(func() { v.sendException(q.id, q.err, false) })
		return nil
	}

	e := v.addExportLocked(v.bootstrap.AddRef())
	q.results = []*export{e}
	v.laterLocked(func() { v.sendBootstrap(q.id, e.id) })
	return nil
}

// +checklocks:v.mu
func (v *vat) laterLocked(f func()) { v.later = append(v.later, f) }

// addExportLocked enters a capability with one reference of the peer. It owns c.
//
// +checklocks:v.mu
func (v *vat) addExportLocked(c capnp.Client) *export {
	for v.exports[v.nextExport] != nil {
		v.nextExport++
	}
	e := &export{id: v.nextExport, client: c, refs: 1}
	v.exports[e.id] = e
	v.nextExport++
	return e
}

// dropRefsLocked takes n of the peer's references, at most those there are.
//
// +checklocks:v.mu
func (v *vat) dropRefsLocked(e *export, n uint32) {
	e.refs -= min(n, e.refs)
	if e.refs == 0 && v.exports[e.id] == e {
		delete(v.exports, e.id)
	}
	v.releaseIfDeadLocked(e)
}

// +checklocks:v.mu
func (v *vat) releaseIfDeadLocked(e *export) {
	if e.refs > 0 || len(e.queue) > 0 || !e.client.IsValid() {
		return
	}
	c := e.client
	e.client = capnp.Client{}
	v.laterLocked(c.Release)
}

func (v *vat) handleRelease(root rpccp.Message) error {
	r, err := root.Release()
	if err != nil {
		return protocolError("release: %v", err)
	}
	v.mu.Lock()
	defer v.unlock()
	e := v.exports[r.Id()]
	if e == nil || r.ReferenceCount() > e.refs {
		return protocolError("release of %d references of capability %d, which are not held", r.ReferenceCount(), r.Id())
	}
	v.dropRefsLocked(e, r.ReferenceCount())
	return nil
}

// handleDisembargo echoes the loopback of a peer that found a promise resolved
// to something of its own, such as an exception: all calls that it made through
// us before were answered to it already or will be, in order.
func (v *vat) handleDisembargo(root rpccp.Message) error {
	d, err := root.Disembargo()
	if err != nil {
		return protocolError("disembargo: %v", err)
	}
	if d.Context().Which() != rpccp.Disembargo_context_Which_senderLoopback {
		return protocolError("disembargo %d is not served", d.Context().Which())
	}
	v.sendLoopback(d.Context().SenderLoopback())
	return nil
}

// minPruneAt bounds how many objects that ended are remembered.
const minPruneAt = 64

// hold makes awaitShutdowns know o, if it dies before. Nil is nothing.
func (v *vat) hold(o *object) {
	if o == nil {
		return
	}

	v.mu.Lock()
	defer v.mu.Unlock()
	v.held[o] = struct{}{}
	if len(v.held) < v.pruneAt {
		return
	}

	for o := range v.held {
		select {
		case <-o.ended:
			delete(v.held, o)
		default:
		}
	}

	v.pruneAt = max(minPruneAt, 2*len(v.held))
}

// awaitShutdowns waits for the objects that died while this vat held them or
// with it. Those that others refer to as well live on.
func (v *vat) awaitShutdowns() {
	v.mu.Lock()
	held := v.held
	v.held = nil
	v.mu.Unlock()
	for o := range held {
		if o.dying.Load() {
			<-o.ended
		}
	}
}

// releaseAll drops every reference of the peer.
func (v *vat) releaseAll() {
	v.mu.Lock()
	defer v.unlock()
	v.questions = nil
	for _, e := range v.exports {
		v.dropRefsLocked(e, e.refs)
	}
	v.laterLocked(v.bootstrap.Release)
}
