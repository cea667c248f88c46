package iommu

import (
	"slices"
	"sync"
)

// Mapping is memory that a device reaches at an address.
type Mapping struct {
	IOVA   IOVA
	Host   []byte
	Access Access
}

// Fake is a Domain without an IOMMU: it refuses the requests that the kernel would refuse,
// and remembers its mappings, so that a device in ordinary memory can reach these and nothing
// else.
type Fake struct {
	ranges  []Range
	entries uint64

	mu sync.Mutex
	// +checklocks:mu
	mappings map[IOVA]Mapping
	// +checklocks:mu
	sorted []IOVA // of mappings
	// +checklocks:mu
	seq uint64
	// +checklocks:mu
	lost error
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	fail func(Op) error
	// +checklocks:mu
	observer Observer
}

var _ Domain = (*Fake)(nil)

// NewFake makes a domain with nothing in it.
func NewFake(ranges []Range, entries uint64) *Fake {
	return &Fake{ranges: slices.Clone(ranges), entries: entries, mappings: map[IOVA]Mapping{}}
}

// Fail makes the operations for which f returns an error fail with it: they
// change nothing. A failed OpUnmap loses the domain.
func (f *Fake) Fail(fail func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

// Observe reports every operation from now on to o.
func (f *Fake) Observe(o Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observer = o
}

// Mappings returns the device's mappings, by address.
func (f *Fake) Mappings() []Mapping {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Mapping, 0, len(f.sorted))
	for _, at := range f.sorted {
		list = append(list, f.mappings[at])
	}
	return list
}

// Reach is the memory that a device gets at when it accesses [iova, iova+bytes),
// or false where the IOMMU would report a fault. An access may span mappings
// only where they are one memory, so it never does here.
func (f *Fake) Reach(iova IOVA, bytes uint64, access Access) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, found := slices.BinarySearch(f.sorted, iova)
	if !found {
		i--
	}
	if i < 0 {
		return nil, false
	}

	m := f.mappings[f.sorted[i]]
	off, size := uint64(iova-m.IOVA), uint64(len(m.Host))
	if m.Access&access != access || off >= size || bytes > size-off {
		return nil, false
	}

	return m.Host[off : off+bytes : off+bytes], true
}

func (f *Fake) Ranges() []Range   { return slices.Clone(f.ranges) }
func (f *Fake) PageBytes() uint64 { return PageBytes | HugeBytes }
func (f *Fake) Entries() uint64   { return f.entries }

// Map adds a mapping.
func (f *Fake) Map(iova IOVA, host []byte, access Access) error {
	if err := checkMap(f.ranges, PageBytes, iova, host, access); err != nil {
		return err
	}

	return f.do(Op{Kind: OpMap, IOVA: iova, Bytes: uint64(len(host))}, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		i, found := slices.BinarySearch(f.sorted, iova)
		switch {
		case uint64(len(f.sorted)) >= f.entries:
			return errEntries(f.entries)
		case found, i < len(f.sorted) && f.sorted[i]-iova < IOVA(len(host)),
			i > 0 && iova-f.sorted[i-1] < IOVA(len(f.mappings[f.sorted[i-1]].Host)):
			return errTaken(iova, uint64(len(host)))
		}
		f.mappings[iova] = Mapping{iova, host, access}
		f.sorted = slices.Insert(f.sorted, i, iova)
		return nil
	})
}

// Unmap removes a mapping.
func (f *Fake) Unmap(iova IOVA, bytes uint64) error {
	err := f.do(Op{Kind: OpUnmap, IOVA: iova, Bytes: bytes}, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		m, ok := f.mappings[iova]
		if !ok || uint64(len(m.Host)) != bytes {
			return errNotMapped(iova, bytes, uint64(len(m.Host)))
		}
		delete(f.mappings, iova)
		i, _ := slices.BinarySearch(f.sorted, iova)
		f.sorted = slices.Delete(f.sorted, i, i+1)
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.lost == nil && !f.closed {
		f.lost = lostBy(err)
	}

	return err
}

// do is one operation, unless there is a reason against it.
func (f *Fake) do(op Op, act func() error) error {
	f.mu.Lock()
	if err := f.unusableLocked(); err != nil {
		f.mu.Unlock()
		return err
	}

	f.seq++
	op.Seq = f.seq
	fail, observer := f.fail, f.observer
	f.mu.Unlock()
	return observed(observer, op, func() error {
		if fail != nil {
			if err := fail(op); err != nil {
				return err
			}
		}
		return act()
	})
}

// +checklocks:f.mu
func (f *Fake) unusableLocked() error {
	if f.closed {
		return errClosed
	}
	return f.lost
}

// Lost is why a failed Unmap has lost the domain, or nil.
func (f *Fake) Lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Close drops every mapping. It is idempotent.
func (f *Fake) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}

	f.closed = true
	f.seq++
	op, fail, observer := Op{Kind: OpClose, Seq: f.seq}, f.fail, f.observer
	clear(f.mappings)
	f.sorted = nil
	f.mu.Unlock()
	return observed(observer, op, func() error {
		if fail != nil {
			return fail(op)
		}
		return nil
	})
}
