package mock

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// A discrete device has memory of its own (Options.LocalBytes). Here that is memory of the
// driver's process; no host file is behind it. It behaves as that of a GPU on which each tenant
// has an engine: a reset of a context ends the work of its group, and the group's memory is
// lost; a reset of the device loses all of it.

// localBase is where the addresses of local memory begin. Those of the host's are below.
const localBase = 1 << 46

// localMemory is what a discrete device has.
type localMemory struct {
	limit uint64

	mu sync.Mutex
	// +checklocks:mu
	used uint64
	// +checklocks:mu
	next uint64 // address that was never handed out, from localBase
	// +checklocks:mu
	buffers map[*localBuffer]struct{}
}

// Local implements backend.LocalMemory.
func (d *Device) Local(c *backend.Context) ddf.DMAPool { return &localPool{&d.local, c.Group} }

// localPool is the memory for the contexts of one group.
type localPool struct {
	memory *localMemory
	group  uint32
}

// Alloc implements ddf.DMAPool.
func (p *localPool) Alloc(_ context.Context, bytes uint64) (ddf.DMABuffer, error) {
	size := (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)
	if bytes == 0 || size < bytes {
		return nil, gpuerr.New(gpuerr.Invalid, "local memory of %d bytes", bytes)
	}

	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > m.limit-m.used {
		return nil, gpuerr.Refused("deviceMemory", size, m.limit-m.used)
	}

	host, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "make local memory of %d bytes: %v", size, err)
	}

	b := &localBuffer{memory: m, group: p.group, host: host, iova: ddf.IOVA(localBase + m.next)}
	m.used += size
	m.next += size + ddf.PageBytes // a page that is nobody's
	if m.buffers == nil {
		m.buffers = map[*localBuffer]struct{}{}
	}
	m.buffers[b] = struct{}{}
	return b, nil
}

// Usage implements ddf.DMAPool. It is that of all groups.
func (p *localPool) Usage() ddf.PoolUsage {
	m := p.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return ddf.PoolUsage{UsedBytes: m.used, LimitBytes: m.limit, Entries: uint64(len(m.buffers))}
}

// lose has the memory of a group, or with all that of each, forget what it held. It returns the
// groups that had some. No job of these groups is in the device.
func (m *localMemory) lose(group uint32, all bool) (groups []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	had := map[uint32]bool{}
	for b := range m.buffers {
		if !all && b.group != group {
			continue
		}
		_ = unix.Madvise(b.host, unix.MADV_DONTNEED) // of anonymous memory it cannot fail
		if !had[b.group] {
			had[b.group] = true
			groups = append(groups, b.group)
		}
	}
	return groups
}

// localBuffer is one piece of local memory.
type localBuffer struct {
	memory *localMemory
	group  uint32
	host   []byte // nil once it is free; guarded by memory.mu, but for Bytes
	iova   ddf.IOVA
}

func (b *localBuffer) IOVA() ddf.IOVA     { return b.iova }
func (b *localBuffer) Size() uint64       { return uint64(len(b.host)) }
func (b *localBuffer) Generation() uint64 { return 1 } // addresses are never used twice
func (b *localBuffer) Bytes() []byte      { return b.host }
func (b *localBuffer) FD() int            { return -1 }

// Scrub implements ddf.DMABuffer.
func (b *localBuffer) Scrub(off, n uint64) error {
	b.memory.mu.Lock()
	defer b.memory.mu.Unlock()
	if size := uint64(len(b.host)); off%ddf.PageBytes != 0 || n%ddf.PageBytes != 0 || off > size || n > size-off {
		return gpuerr.New(gpuerr.Invalid, "scrub of %d bytes at %d of %d", n, off, size)
	}
	if n == 0 {
		return nil
	}
	return unix.Madvise(b.host[off:off+n], unix.MADV_DONTNEED)
}

// Free implements ddf.DMABuffer.
func (b *localBuffer) Free() error {
	m := b.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.host == nil {
		return nil
	}

	size := uint64(len(b.host))
	if err := unix.Munmap(b.host); err != nil {
		return gpuerr.New(gpuerr.IO, "free local memory of %d bytes: %v", size, err)
	}
	b.host = nil
	m.used -= size
	delete(m.buffers, b)
	return nil
}

var _ backend.LocalMemory = (*Device)(nil)
