// Package handles is the table of a session's handles: numbers under which a client names its
// objects.
//
// Looking up takes no lock: slots hold immutable refs, and pages never move. A handle is good
// while its slot holds a ref with the very same handle, so a later object in the slot (another
// generation) does not answer to it.
//
// Generations start at a random number in each table, so that a handle of another session is
// stale here and not by chance somebody's.
package handles

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"capgpu/gpuerr"
)

// Handle names an object of one session: the index of its slot in the low, the
// slot's generation in the high 32 bits. Zero is no handle.
type Handle uint64

// ErrStale is one value: looking up a bad handle allocates nothing, and says
// nothing about why it is bad.
var ErrStale = gpuerr.New(gpuerr.Stale, "the handle names no object of this session; it was closed or never was one")

const (
	pageSlots = 256     // slots of one page of a table
	maxSlots  = 1 << 20 // objects of one session
)

// ref is one published handle; it never changes.
type ref struct {
	h   Handle
	obj any // a pointer
}

type slotPage [pageSlots]atomic.Pointer[ref]

// Table is the handles of one session.
type Table struct {
	pages atomic.Pointer[[]*slotPage]

	mu sync.Mutex
	// +checklocks:mu
	generations []uint32 // of the next handle of each slot
	// +checklocks:mu
	free []uint32
	// +checklocks:mu
	first uint32
	// +checklocks:mu
	live int
}

// New makes an empty table.
func New() *Table {
	t := &Table{first: 1 + rand.Uint32N(math.MaxInt32)}
	t.pages.Store(new([]*slotPage))
	return t
}

// Lookup returns the object of a handle if it is a T.
func Lookup[T any](t *Table, h Handle) (*T, error) {
	if r := t.slot(uint32(h)); r != nil {
		if ref := r.Load(); ref != nil && ref.h == h {
			if obj, ok := ref.obj.(*T); ok {
				return obj, nil
			}
		}
	}
	return nil, ErrStale
}

func (t *Table) slot(i uint32) *atomic.Pointer[ref] {
	pages := *t.pages.Load()
	if p := i / pageSlots; int(p) < len(pages) {
		return &pages[p][i%pageSlots]
	}
	return nil
}

// Add publishes obj; set tells it its handle before anyone else can know it.
func (t *Table) Add(obj any, set func(Handle)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 && len(t.generations) == maxSlots {
		return gpuerr.Refused("handles", 1, 0)
	}
	var i uint32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		i = uint32(len(t.generations))
		if i%pageSlots == 0 {
			old := *t.pages.Load()
			grown := append(old[:len(old):len(old)], new(slotPage))
			t.pages.Store(&grown)
		}
		t.generations = append(t.generations, t.first)
	}
	h := Handle(t.generations[i])<<32 | Handle(i)
	t.live++
	set(h)
	t.slot(i).Store(&ref{h: h, obj: obj})
	return nil
}

// Take ends a handle. Exactly one of racing callers gets the object.
func Take[T any](t *Table, h Handle) (*T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	obj, err := Lookup[T](t, h)
	if err != nil {
		return nil, err
	}
	i := uint32(h)
	t.slot(i).Store(nil)
	t.live--
	if t.generations[i]++; t.generations[i] != 0 { // a slot out of generations is never used again
		t.free = append(t.free, i)
	}
	return obj, nil
}

// Each calls f for every live object of type T, in no order. Objects that come
// or go meanwhile may be missed.
func Each[T any](t *Table, f func(*T)) {
	for _, p := range *t.pages.Load() {
		for i := range p {
			if r := p[i].Load(); r != nil {
				if obj, ok := r.obj.(*T); ok {
					f(obj)
				}
			}
		}
	}
}
