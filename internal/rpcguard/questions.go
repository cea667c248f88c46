package rpcguard

import (
	"slices"

	"capnproto.org/go/capnp/v3/exc"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"capgpu/gpuerr"
)

// question is a Bootstrap or Call that has not both returned and finished.
type question struct {
	id          uint32
	call        *call // nil for Bootstrap, and once returned
	returned    bool
	finished    bool
	releaseCaps bool           // set by the Finish
	err         *exc.Exception // the result, if it is one
	results     []*export      // by index of the result's capability table; nil: none
	paths       []capPath      // where the results hold capabilities
	targets     []*call        // calls parked on it as their target, in order
	arguments   []argument     // calls parked on it as an argument
	waiting     int            // parked calls that still need it, as either
}

// addQuestionLocked enters a new question, or says why the peer may not ask it.
//
// +checklocks:v.mu
func (v *vat) addQuestionLocked(q *question) error {
	if v.questions[q.id] != nil {
		return protocolError("question %d asked twice", q.id)
	}
	if len(v.questions) >= v.limits.MaxQuestions {
		return protocolError("%d questions without a Finish", len(v.questions))
	}
	v.questions[q.id] = q
	return nil
}

func (v *vat) handleFinish(root rpccp.Message) error {
	f, err := root.Finish()
	if err != nil {
		return protocolError("finish: %v", err)
	}

	v.mu.Lock()
	defer v.unlock()
	q := v.questions[f.QuestionId()]
	if q == nil || q.finished {
		return protocolError("finish of question %d, which is not open", f.QuestionId())
	}

	q.finished, q.releaseCaps = true, f.ReleaseResultCaps()
	if q.returned {
		v.dropQuestionLocked(q)
		return nil
	}

	v.cancelIfUnwantedLocked(q)
	return nil
}

// dropQuestionLocked forgets a question that has returned and finished.
//
// +checklocks:v.mu
func (v *vat) dropQuestionLocked(q *question) {
	delete(v.questions, q.id)
	if q.releaseCaps {
		for _, e := range q.results {
			if e != nil {
				v.dropRefsLocked(e, 1)
			}
		}
	}
}

// cancelIfUnwantedLocked cancels a call if neither the peer nor a parked call wants its
// result any more.
//
// +checklocks:v.mu
func (v *vat) cancelIfUnwantedLocked(q *question) {
	if !q.finished || q.returned || q.waiting > 0 || q.call == nil {
		return
	}
	if q.call.started {
		q.call.cancel(errFinished)
		return
	}
	v.failLocked(q, exceptionOf(errFinished))
}

var errFinished = gpuerr.New(gpuerr.Closed, "cancelled by the caller")

// lookup finds the capability at path in a returned question's results.
func (q *question) lookup(path []uint16) (*export, *exc.Exception) {
	if q.err != nil {
		return nil, q.err
	}
	for _, p := range q.paths {
		if !slices.Equal(p.fields, path) || p.index >= len(q.results) || q.results[p.index] == nil {
			continue
		}
		if e := q.results[p.index]; e.client.IsValid() {
			return e, nil
		}
		return nil, exceptionOf(gpuerr.New(gpuerr.Closed, "the capability that this call names was released"))
	}
	return nil, exceptionOf(gpuerr.New(gpuerr.Invalid, "the result holds no capability at the path that this call names"))
}

// failParked answers every call that has not started, when the vat closes, and
// lets none start any more.
func (v *vat) failParked() {
	v.mu.Lock()
	defer v.unlock()
	v.closing = true
	gone := exceptionOf(gpuerr.New(gpuerr.Disconnected, "the connection is closed"))
	for _, q := range v.questions {
		if q.call != nil && !q.call.started {
			v.failLocked(q, gone)
		}
	}
}
