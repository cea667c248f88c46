// Package shm is memory, wakes and sockets shared between processes.
//
// Memory is a memfd, sealed so that no process can shrink or grow it: a peer that could would
// make the other side fault on its own mapping. It can be of huge
// pages, which a device maps in one entry each. Event is an eventfd.
// A Sender and a Receiver are the two ends of a pipe used to wake a peer.
// Socketpair makes the SEQPACKET sockets of package control.
//
// Trust: the other side of a descriptor is not trusted. A descriptor from outside is checked
// (seals, size, kind) before use. No operation here depends on the O_NONBLOCK flag of a
// descriptor that shares its open file description with a peer: the peer could clear it and
// block this process.
//
// Ownership: functions that take an fd own it from the call on, also when they
// fail. Close is idempotent and unblocks waiters. A mapping outlives the Memory
// it came from, until Unmap.
package shm

import (
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// PageBytes is the smallest granule of offsets in Map and Punch.
var PageBytes = uint64(os.Getpagesize())

// sealsWanted keep the size fixed for ever.
const sealsWanted = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Memory is one memfd.
type Memory struct {
	bytes   uint64
	granule uint64 // bytes of its pages

	// mu keeps fd from being closed, and its number reused, under a system call.
	mu sync.RWMutex
	// +checklocks:mu
	fd int // -1 once closed
}

// Create makes zeroed memory of the given size, rounded up to whole pages, and
// seals it against shrinking, growing and further seals.
func Create(name string, bytes uint64) (*Memory, error) {
	if bytes == 0 || bytes > math.MaxInt64-PageBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "bytes: cannot make shared memory of %d bytes; ask for 1 or more", bytes)
	}
	return sealed(name, (bytes+PageBytes-1)&^(PageBytes-1), PageBytes, 0)
}

// sealed makes sealed memory of whole pages.
func sealed(name string, bytes, granule uint64, flags int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return nil, ioError("create shared memory", err)
	}
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		unix.Close(fd)
		return nil, ioError("size shared memory", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sealsWanted); err != nil {
		unix.Close(fd)
		return nil, ioError("seal shared memory", err)
	}
	return &Memory{bytes: bytes, granule: granule, fd: fd}, nil
}

// FromFD takes a memfd from a peer. It must be sealed against shrinking and hold at least the
// given number of bytes; Size is its real size.
func FromFD(fd int, bytes uint64) (*Memory, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		closeFD(fd)
		return nil, gpuerr.New(gpuerr.Protocol, "descriptor is no shared memory (memfd): %v", err)
	}

	if seals&unix.F_SEAL_SHRINK == 0 {
		closeFD(fd)
		return nil, gpuerr.New(gpuerr.Protocol, "shared memory is not sealed against shrinking; add F_SEAL_SHRINK before sending it")
	}

	// The size is read after the seal was seen: from here on it cannot go down.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		closeFD(fd)
		return nil, ioError("stat shared memory", err)
	}

	if st.Size < 0 || uint64(st.Size) < bytes {
		closeFD(fd)
		return nil, gpuerr.New(gpuerr.Protocol, "shared memory holds %d bytes, less than the %d announced", st.Size, bytes)
	}

	granule, err := granuleOf(fd)
	if err != nil {
		closeFD(fd)
		return nil, err
	}

	return &Memory{bytes: uint64(st.Size), granule: granule, fd: fd}, nil
}

// FD is the descriptor, owned by m; -1 once closed.
func (m *Memory) FD() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.fd
}

// Size in bytes.
func (m *Memory) Size() uint64 { return m.bytes }

// DupFD returns a close-on-exec duplicate that the caller owns.
func (m *Memory) DupFD() (int, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fd < 0 {
		return -1, errMemoryClosed
	}
	return dupFD(m.fd)
}

// Granule is the size of the memory's pages: PageBytes or HugeBytes. For FromFD the peer has
// chosen it.
func (m *Memory) Granule() uint64 { return m.granule }

// Map maps bytes [off, off+n), shared; off is a multiple of Granule. Other processes may
// change the memory at any time: read each word once.
func (m *Memory) Map(off, n uint64, writable bool) ([]byte, error) {
	if off%m.granule != 0 || n == 0 || n > math.MaxInt || off > m.bytes || n > m.bytes-off {
		return nil, gpuerr.New(gpuerr.Invalid, "map: range off=%d len=%d does not lie in shared memory of %d bytes, or off is no multiple of %d", off, n, m.bytes, m.granule)
	}

	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}

	length := n
	if m.granule > PageBytes {
		length = (n + m.granule - 1) &^ (m.granule - 1) // munmap does not round it up as mmap does
	}

	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fd < 0 {
		return nil, errMemoryClosed
	}

	b, err := unix.Mmap(m.fd, int64(off), int(length), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, ioError("map shared memory", err)
	}

	if m.granule == PageBytes && n >= HugeBytes {
		// Effective if the host has huge pages on request; otherwise it changes nothing.
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}

	return b[:n], nil
}

// Unmap ends a mapping that Map returned; b must be the whole of it.
func Unmap(b []byte) error {
	if b == nil {
		return nil
	}
	if err := unix.Munmap(b[:cap(b)]); err != nil {
		return ioError("unmap shared memory", err)
	}
	return nil
}

// Punch gives the pages of [off, off+n) back to the host; they read as zero afterwards, in
// every process. Both are multiples of Granule. A process that touches a huge page afterwards
// gets a memory fault if the host has none left: see Zero.
func (m *Memory) Punch(off, n uint64) error {
	if err := m.checkRange("punch", off, n, m.granule); err != nil || n == 0 {
		return err
	}
	return m.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (m *Memory) checkRange(verb string, off, n, granule uint64) error {
	if off%granule != 0 || n%granule != 0 || off > m.bytes || n > m.bytes-off {
		return gpuerr.New(gpuerr.Invalid, "%s: range off=%d len=%d does not lie in shared memory of %d bytes, or is not whole pages of %d", verb, off, n, m.bytes, granule)
	}
	return nil
}

// fallocate allocates pages, or punches them out.
func (m *Memory) fallocate(mode uint32, off, n uint64) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fd < 0 {
		return errMemoryClosed
	}

	for {
		err := unix.Fallocate(m.fd, mode, int64(off), int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return ioError("allocate or punch shared memory", err)
		}
		return nil
	}
}

// Close closes the descriptor. Mappings stay until Unmap.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fd < 0 {
		return nil
	}
	fd := m.fd
	m.fd = -1
	if err := unix.Close(fd); err != nil {
		return ioError("close shared memory", err)
	}
	return nil
}

var errMemoryClosed = gpuerr.New(gpuerr.Closed, "shared memory is closed")
