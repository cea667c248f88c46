package engine

import (
	"context"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// Memory of the device's own is an engine's, and lost with it. An engine zeroes it when it is
// made and when it is freed. A part that is scrubbed is noted, and zeroed by a fill before the
// next job that uses the piece: a fill at once would wait for jobs of others.

// localBase is where the addresses of local memory begin. Those of the host's are below.
const localBase = 1 << 46

// localUse is guarded by Backend.mu.
type localUse struct {
	bytes uint64
	next  uint64 // address that was never handed out, from localBase
	count uint64
}

// Local implements backend.LocalMemory.
func (b *Backend) Local(c *backend.Context) ddf.DMAPool { return &localPool{b, groupOf(c)} }

// localPool is the memory for the contexts of one group.
type localPool struct {
	b     *Backend
	group uint32
}

// Alloc implements ddf.DMAPool.
func (l *localPool) Alloc(ctx context.Context, bytes uint64) (ddf.DMABuffer, error) {
	size := (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)
	if bytes == 0 || size < bytes {
		return nil, gpuerr.New(gpuerr.Invalid, "local memory of %d bytes", bytes)
	}
	x, err := l.reserve(size)
	if err != nil {
		return nil, err
	}

	buf := &localBuffer{b: l.b, piece: x}
	// Address space that nothing touches.
	buf.host, err = unix.Mmap(-1, 0, int(size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		l.b.forgetLocal(x)
		return nil, gpuerr.New(gpuerr.IO, "reserve addresses for local memory of %d bytes: %v", size, err)
	}

	err = l.b.withProc(ctx, l.group, func(p *proc) error {
		_, err := p.call(&wire.Order{Kind: wire.Alloc, ID: uint32(x.id), Bytes: size}, -1)
		if err == nil && !l.b.keep(p, x) {
			err = errEngineDied
		}
		return err
	})
	if err != nil {
		l.b.forgetLocal(x)
		_ = unix.Munmap(buf.host) // it is a mapping of ours
		return nil, err
	}
	return buf, nil
}

// reserve charges memory and gives it an address.
func (l *localPool) reserve(size uint64) (*piece, error) {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	u := &b.memory.local
	if available := b.device.LocalBytes - u.bytes; size > available {
		return nil, gpuerr.Refused("deviceMemory", size, available)
	}
	x := &piece{group: l.group, iova: localBase + u.next, bytes: size}
	u.bytes += size
	u.count++
	u.next += size + ddf.PageBytes // a page that is nobody's
	b.memory.add(x)
	return x, nil
}

// keep says that an engine has a piece. It is false if the engine is dead.
func (b *Backend) keep(p *proc, x *piece) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.dead {
		return false
	}
	x.in = p
	p.local++
	return true
}

func (b *Backend) forgetLocal(x *piece) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memory.local.bytes -= x.bytes
	b.memory.local.count--
	if x.in != nil {
		x.in.local--
	}
	b.memory.remove(x)
}

// Usage implements ddf.DMAPool. It is that of all groups.
func (l *localPool) Usage() ddf.PoolUsage {
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	u := &b.memory.local
	return ddf.PoolUsage{UsedBytes: u.bytes, LimitBytes: b.device.LocalBytes, Entries: u.count}
}

// localBuffer is one piece of local memory.
type localBuffer struct {
	b     *Backend
	piece *piece
	host  []byte // nil once it is free
}

func (l *localBuffer) IOVA() ddf.IOVA     { return ddf.IOVA(l.piece.iova) }
func (l *localBuffer) Size() uint64       { return l.piece.bytes }
func (l *localBuffer) Generation() uint64 { return 1 } // addresses are never used twice
func (l *localBuffer) Bytes() []byte      { return l.host }
func (l *localBuffer) FD() int            { return -1 }

// Scrub implements ddf.DMABuffer.
func (l *localBuffer) Scrub(off, n uint64) error {
	x := l.piece
	if off%ddf.PageBytes != 0 || n%ddf.PageBytes != 0 || off > x.bytes || n > x.bytes-off {
		return gpuerr.New(gpuerr.Invalid, "scrub of %d bytes at %d of %d", n, off, x.bytes)
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if n > 0 {
		x.dirty = append(x.dirty, span{off, n})
	}
	return nil
}

// Free implements ddf.DMABuffer.
func (l *localBuffer) Free() error {
	if l.host == nil {
		return nil
	}

	l.b.mu.Lock()
	lost := l.piece.in == nil
	l.b.mu.Unlock()
	if !lost {
		if err := l.b.release(l.piece); err != nil {
			return err
		}
	}
	l.b.forgetLocal(l.piece)
	if err := unix.Munmap(l.host); err != nil {
		return gpuerr.New(gpuerr.IO, "free local memory: %v", err)
	}
	l.host = nil
	return nil
}

// loseLocalLocked notes that what an engine had is lost. It reports whether there was any.
//
// +checklocks:b.mu
func (b *Backend) loseLocalLocked(p *proc) (had bool) {
	for _, x := range b.memory.groups[p.group] {
		if x.in == p {
			x.in, x.dirty, x.scrub, had = nil, nil, nil, true
		}
	}
	p.local = 0
	return had
}

// tellLost tells the sink that a group has lost its local memory.
func (b *Backend) tellLost(group uint32, why string) {
	b.mu.Lock()
	sink, _ := b.sink.(backend.LocalSink)
	b.mu.Unlock()
	if sink != nil {
		sink.LocalLost(group, why)
	}
}
