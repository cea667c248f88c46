package rpcguard

import (
	"context"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"capgpu/gpuerr"
)

// call is a call that has not returned.
type call struct {
	v      *vat
	q      *question
	msg    *capnp.Message
	bytes  int64
	method capnp.Method
	args   capnp.Struct
	caps   []capnp.Client // of the arguments; the call's own references

	// Under vat.mu:
	target      *export     // once known
	path        []uint16    // of the question it is parked on
	parents     []*question // those it waits for, once for each reason
	argsWaiting int         // entries of caps that still have to resolve
	started     bool
	done        bool
	refusedCaps bool // the peer sent capabilities of its own: give them back

	cancel  context.CancelCauseFunc // set when started
	results *capnp.Message          // by the method, through AllocResults
	ret     rpccp.Return
	payload rpccp.Payload
	err     error
}

func (v *vat) handleCall(root rpccp.Message, messageBytes int64) error {
	in, err := root.Call()
	if err != nil {
		return protocolError("call: %v", err)
	}
	if in.SendResultsTo().Which() != rpccp.Call_sendResultsTo_Which_caller {
		return protocolError("call: results go to the caller only")
	}

	to, err := in.Target()
	if err != nil {
		return protocolError("call: target: %v", err)
	}

	tgt, err := parseTarget(to)
	if err != nil {
		return err
	}

	params, err := in.Params()
	if err != nil {
		return protocolError("call: params: %v", err)
	}

	content, err := params.Content()
	if err != nil {
		return protocolError("call: params: %v", err)
	}

	table, err := params.CapTable()
	if err != nil {
		return protocolError("call: capability table: %v", err)
	}
	if table.Len() > v.limits.MaxCapsPerCall {
		return protocolError("call: %d capabilities; at most %d", table.Len(), v.limits.MaxCapsPerCall)
	}

	c := &call{
		v: v, msg: root.Message(), bytes: messageBytes, args: content.Struct(),
		method: capnp.Method{InterfaceID: in.InterfaceId(), MethodID: in.MethodId()},
		caps:   make([]capnp.Client, table.Len()),
	}
	c.q = &question{id: in.QuestionId(), call: c}
	v.mu.Lock()
	defer v.unlock()
	return v.enterLocked(c, tgt, table)
}

// enterLocked checks a new call against the tables, enters it, and starts it if
// all that it names is there. An error is a breach of the protocol, and then
// nothing has changed that the vat's end would not undo.
//
// +checklocks:v.mu
func (v *vat) enterLocked(c *call, tgt target, table rpccp.CapDescriptor_List) error {
	// Its own question is not in the table yet: a call on itself is unknown.
	var refusal *exc.Exception
	on, refusal, err := v.resolveLocked(tgt)
	if err != nil {
		return err
	}

	args := make([]target, 0, table.Len())
	for i := range table.Len() {
		arg, argRefusal, err := v.checkArgumentLocked(c, table.At(i))
		if err != nil {
			return err
		}
		if argRefusal != nil && refusal == nil {
			refusal = argRefusal
		}
		args = append(args, arg)
	}

	if err := v.addQuestionLocked(c.q); err != nil {
		return err
	}
	if refusal == nil && !v.hasRoomLocked() {
		refusal = exceptionOf(gpuerr.New(gpuerr.Busy, "%d calls of this connection have not returned yet; let some of them end", v.calls))
	}

	v.calls++
	v.callBytes += c.bytes
	if refusal != nil {
		v.failLocked(c.q, refusal)
		return nil
	}

	for i, arg := range args {
		if failure := v.bindArgumentLocked(c, i, arg, table.At(i)); failure != nil {
			v.failLocked(c.q, failure)
			return nil
		}
	}

	if on == nil {
		parent := v.questions[tgt.id]
		c.parents = append(c.parents, parent)
		parent.waiting++
		parent.targets = append(parent.targets, c)
		c.path = tgt.path
		return nil
	}

	v.enqueueLocked(c, on)
	v.pumpLocked(on)
	return nil
}

// checkArgumentLocked judges an entry of a call's capability table without
// keeping anything.
//
// +checklocks:v.mu
func (v *vat) checkArgumentLocked(c *call, d rpccp.CapDescriptor) (target, *exc.Exception, error) {
	switch d.Which() {
	case rpccp.CapDescriptor_Which_none:
		return target{}, nil, nil
	case rpccp.CapDescriptor_Which_receiverHosted:
		t := target{id: d.ReceiverHosted()}
		_, _, err := v.resolveLocked(t)
		return t, nil, err
	case rpccp.CapDescriptor_Which_receiverAnswer:
		pa, err := d.ReceiverAnswer()
		if err != nil {
			return target{}, nil, protocolError("capability table: %v", err)
		}
		t, err := parsePromise(pa)
		if err != nil {
			return target{}, nil, err
		}
		_, failure, err := v.resolveLocked(t)
		return t, failure, err
	case rpccp.CapDescriptor_Which_senderHosted, rpccp.CapDescriptor_Which_senderPromise,
		rpccp.CapDescriptor_Which_thirdPartyHosted:
		c.refusedCaps = true
		return target{}, exceptionOf(gpuerr.New(gpuerr.Denied,
			"an argument is a capability of the client's own; this service takes only those that it gave")), nil
	default:
		return target{}, nil, protocolError("capability table: kind %d is not served", d.Which())
	}
}

// bindArgumentLocked gives the call its own reference of argument i, or parks
// it until there is one.
//
// +checklocks:v.mu
func (v *vat) bindArgumentLocked(c *call, i int, t target, d rpccp.CapDescriptor) *exc.Exception {
	if d.Which() == rpccp.CapDescriptor_Which_none {
		return nil
	}

	e, failure, _ := v.resolveLocked(t)
	if failure != nil {
		return failure
	}

	if e != nil {
		c.caps[i] = e.client.AddRef()
		return nil
	}

	q := v.questions[t.id]
	q.arguments = append(q.arguments, argument{call: c, index: i, path: t.path})
	q.waiting++
	c.parents = append(c.parents, q)
	c.argsWaiting++
	return nil
}

// +checklocks:v.mu
func (v *vat) enqueueLocked(c *call, e *export) {
	c.target = e
	e.queue = append(e.queue, c)
}

// pumpLocked starts the calls at the head of e's queue that wait for nothing.
//
// +checklocks:v.mu
func (v *vat) pumpLocked(e *export) {
	for len(e.queue) > 0 {
		head := e.queue[0]
		if !head.done && head.argsWaiting > 0 {
			return
		}
		// Off the queue first: starting may come back here.
		e.queue[0] = nil
		e.queue = e.queue[1:]
		if !head.done {
			v.startLocked(head, e)
		}
	}
	e.queue = nil
	v.releaseIfDeadLocked(e)
}

// startLocked gives the call to its object. RecvCall only queues it.
//
// +checklocks:v.mu
func (v *vat) startLocked(c *call, e *export) {
	if v.closing {
		v.failLocked(c.q, exceptionOf(gpuerr.New(gpuerr.Disconnected, "the connection is closed")))
		return
	}

	v.unparkLocked(c)
	c.started = true
	c.msg.CapTable().Reset(c.caps...)
	c.caps = nil
	var ctx context.Context
	ctx, c.cancel = context.WithCancelCause(v.ctx)
	if c.q.finished && c.q.waiting == 0 {
		c.cancel(errFinished)
	}

	v.running.Add(1)
	e.client.RecvCall(ctx, capnp.Recv{
		Method: c.method, Args: c.args, ReleaseArgs: c.releaseArgs, Returner: c,
	})
}

// releaseArgs drops the references; the memory is the collector's.
func (c *call) releaseArgs() { c.msg.CapTable().Reset() }

// unparkLocked: the call waits for no question any more.
//
// +checklocks:v.mu
func (v *vat) unparkLocked(c *call) {
	parents := c.parents
	c.parents = nil
	for _, q := range parents {
		q.waiting--
		v.cancelIfUnwantedLocked(q)
	}
}

// failLocked answers a call that has not started, and those that wait for it.
//
// +checklocks:v.mu
func (v *vat) failLocked(q *question, e *exc.Exception) {
	c := q.call
	c.done = true
	for _, arg := range c.caps {
		v.laterLocked(arg.Release)
	}
	c.caps = nil
	v.unparkLocked(c)
	id, releaseParams := q.id, c.refusedCaps
	v.laterLocked(func() { v.sendException(id, e, releaseParams) })
	q.err = e
	v.settleLocked(q)
	if c.target != nil {
		v.pumpLocked(c.target)
	}
}

// settleLocked makes a question returned: its call counts no more, and the
// calls that waited for its result go on or fail.
//
// +checklocks:v.mu
func (v *vat) settleLocked(q *question) {
	v.calls--
	v.callBytes -= q.call.bytes
	q.call, q.returned = nil, true
	v.signalRoom()
	targets, arguments := q.targets, q.arguments
	q.targets, q.arguments = nil, nil
	for _, c := range targets {
		if c.done {
			continue
		}
		if e, failure := q.lookup(c.path); failure != nil {
			v.failLocked(c.q, failure)
		} else {
			v.enqueueLocked(c, e)
			v.pumpLocked(e)
		}
	}

	for _, a := range arguments {
		if a.call.done {
			continue
		}
		e, failure := q.lookup(a.path)
		if failure != nil {
			v.failLocked(a.call.q, failure)
			continue
		}
		a.call.caps[a.index] = e.client.AddRef()
		a.call.argsWaiting--
		if a.call.target != nil {
			v.pumpLocked(a.call.target)
		}
	}

	for _, e := range q.results {
		if e != nil {
			v.releaseIfDeadLocked(e)
		}
	}

	if q.finished {
		v.dropQuestionLocked(q)
	}
}
