package rpcguard

import (
	"capnproto.org/go/capnp/v3/exc"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// maxPathFields bounds the path of a promised answer; our results are flat.
const maxPathFields = 8

// target is the capability that is called, or an argument.
type target struct {
	isPromise bool
	id        uint32
	path      []uint16
}

func parseTarget(t rpccp.MessageTarget) (target, error) {
	switch t.Which() {
	case rpccp.MessageTarget_Which_importedCap:
		return target{id: t.ImportedCap()}, nil
	case rpccp.MessageTarget_Which_promisedAnswer:
		pa, err := t.PromisedAnswer()
		if err != nil {
			return target{}, protocolError("promised answer: %v", err)
		}
		return parsePromise(pa)
	default:
		return target{}, protocolError("call: target kind %d is not served", t.Which())
	}
}

func parsePromise(pa rpccp.PromisedAnswer) (target, error) {
	ops, err := pa.Transform()
	if err != nil {
		return target{}, protocolError("promised answer: %v", err)
	}
	if ops.Len() > maxPathFields {
		return target{}, protocolError("promised answer: a path of %d steps; at most %d", ops.Len(), maxPathFields)
	}

	t := target{isPromise: true, id: pa.QuestionId()}
	for i := range ops.Len() {
		switch op := ops.At(i); op.Which() {
		case rpccp.PromisedAnswer_Op_Which_noop:
		case rpccp.PromisedAnswer_Op_Which_getPointerField:
			t.path = append(t.path, op.GetPointerField())
		default:
			return target{}, protocolError("promised answer: step kind %d is not served", op.Which())
		}
	}

	return t, nil
}

// resolveLocked finds a target. All nil: a promise that has not returned.
//
// +checklocks:v.mu
func (v *vat) resolveLocked(t target) (*export, *exc.Exception, error) {
	if !t.isPromise {
		e := v.exports[t.id]
		if e == nil {
			return nil, nil, protocolError("capability %d is not held", t.id)
		}
		return e, nil, nil
	}

	q := v.questions[t.id]
	if q == nil || q.finished {
		return nil, nil, protocolError("question %d is not open", t.id)
	}
	if !q.returned {
		return nil, nil, nil
	}

	e, failure := q.lookup(t.path)
	return e, failure, nil
}
