package gate

import (
	"context"
	"sync"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
)

// object is the common part of a buffer, a fence and a queue: close ends the object
// and all its capabilities.
type object struct {
	s      *session
	noun   string // for errors
	gate   *rpcguard.Gate
	behind interface {
		Close(ctx context.Context) error
	}
	forget func() // for an object with an id; else nil
}

func (s *session) newObject(noun string, behind interface {
	Close(ctx context.Context) error
}) object {
	return object{s: s, noun: noun, gate: s.gate.NewChild(), behind: behind}
}

// close is idempotent.
func (o *object) close(ctx context.Context) error {
	if o.forget != nil {
		o.forget()
	}
	err := o.behind.Close(ctx)
	o.gate.Revoke(gpuerr.New(gpuerr.Closed, "the %s was closed", o.noun))
	return err
}

// shutdown closes the object when its last capability is gone.
func (o *object) shutdown() { _ = o.close(context.Background()) }

// ids are a session's objects of one kind, by their ids.
type ids[T any] struct {
	noun string
	mu   sync.Mutex
	// +checklocks:mu
	byID map[uint32]*T
}

// add adds an object and returns a function that removes it.
func (i *ids[T]) add(id uint32, v *T) (forget func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.byID == nil {
		i.byID = map[uint32]*T{}
	}
	i.byID[id] = v
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.byID, id)
	}
}

// find finds an id of this session. field names the argument in the error.
func (i *ids[T]) find(id uint32, field string) (*T, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v := i.byID[id]; v != nil {
		return v, nil
	}
	return nil, gpuerr.New(gpuerr.Stale, "%s: no %s of this session has the id %d", field, i.noun, id)
}
