package peers

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From <linux/io_uring.h>, Linux 6.1.
const (
	sysSetup, sysEnter = 425, 426

	offSQRing, offCQRing, offSQEs = 0, 0x8000000, 0x10000000

	enterGetEvents = 1
	opNop          = 0
)

type sqOffsets struct {
	Head, Tail, RingMask, RingEntries, Flags, Dropped, Array, Resv1 uint32
	UserAddr                                                        uint64
}

type cqOffsets struct {
	Head, Tail, RingMask, RingEntries, Overflow, CQEs, Flags, Resv1 uint32
	UserAddr                                                        uint64
}

type uringParams struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFD uint32
	Resv                                                                   [3]uint32
	SQOff                                                                  sqOffsets
	CQOff                                                                  cqOffsets
}

type uringSQE struct {
	Opcode, Flags uint8
	_             uint16
	FD            int32
	Off, Addr     uint64
	Len, OpFlags  uint32
	UserData      uint64
	_             [3]uint64
}

type uringCQE struct {
	UserData uint64
	Res      int32
	Flags    uint32
}

// Uring is an io_uring without a kernel thread, by its bare system calls.
type Uring struct {
	fd             int
	entries        uint32
	sqRing, cqRing []byte
	sqeMem         []byte
	sqTail, cqHead *atomic.Uint32
	cqTail         *atomic.Uint32
	sqMask, cqMask uint32
	array          []uint32
	sqes           []uringSQE
	cqes           []uringCQE
	next           uint64
}

// NewUring makes a ring of this many entries, a power of two. If io_uring is
// forbidden, the error is the kernel's.
func NewUring(entries uint32) (*Uring, error) {
	var p uringParams
	fd, _, errno := syscall.Syscall(sysSetup, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}

	u := &Uring{fd: int(fd), entries: entries}
	var err error
	mmap := func(off int64, bytes uint32) []byte {
		if err != nil {
			return nil
		}
		var mem []byte
		mem, err = unix.Mmap(u.fd, off, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		return mem
	}

	u.sqRing = mmap(offSQRing, p.SQOff.Array+p.SQEntries*4)
	u.cqRing = mmap(offCQRing, p.CQOff.CQEs+p.CQEntries*uint32(unsafe.Sizeof(uringCQE{})))
	u.sqeMem = mmap(offSQEs, p.SQEntries*uint32(unsafe.Sizeof(uringSQE{})))
	if err != nil {
		u.Close()
		return nil, fmt.Errorf("map an io_uring: %w", err)
	}

	word := func(ring []byte, off uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&ring[off])) }
	u.sqTail, u.cqHead, u.cqTail = word(u.sqRing, p.SQOff.Tail), word(u.cqRing, p.CQOff.Head), word(u.cqRing, p.CQOff.Tail)
	u.sqMask, u.cqMask = word(u.sqRing, p.SQOff.RingMask).Load(), word(u.cqRing, p.CQOff.RingMask).Load()
	u.array = unsafe.Slice((*uint32)(unsafe.Pointer(&u.sqRing[p.SQOff.Array])), p.SQEntries)
	u.sqes = unsafe.Slice((*uringSQE)(unsafe.Pointer(&u.sqeMem[0])), p.SQEntries)
	u.cqes = unsafe.Slice((*uringCQE)(unsafe.Pointer(&u.cqRing[p.CQOff.CQEs])), p.CQEntries)
	return u, nil
}

// Nops submits n NOPs at once, and takes their completions.
func (u *Uring) Nops(n int) error {
	tail := u.sqTail.Load()
	for range n {
		i := tail & u.sqMask
		u.next++
		u.sqes[i] = uringSQE{Opcode: opNop, FD: -1, UserData: u.next}
		u.array[i] = i
		tail++
	}

	u.sqTail.Store(tail)
	submitted, _, errno := syscall.Syscall6(sysEnter, uintptr(u.fd), uintptr(n), uintptr(n), enterGetEvents, 0, 0)
	if errno != 0 {
		return fmt.Errorf("io_uring_enter: %w", errno)
	}

	head, seen := u.cqHead.Load(), u.cqTail.Load()
	if int(submitted) != n || int(seen-head) != n {
		return fmt.Errorf("io_uring took %d of %d NOPs and completed %d", submitted, n, seen-head)
	}

	for first := u.next - uint64(n) + 1; head != seen; head++ {
		c := &u.cqes[head&u.cqMask]
		if c.Res != 0 || c.UserData != first {
			return fmt.Errorf("a NOP of io_uring ended %d, as number %d instead of %d", c.Res, c.UserData, first)
		}
		first++
	}

	u.cqHead.Store(head)
	return nil
}

// Close frees the ring.
func (u *Uring) Close() error {
	for _, mem := range [][]byte{u.sqRing, u.cqRing, u.sqeMem} {
		if mem != nil {
			_ = unix.Munmap(mem) // a mapping of ours
		}
	}
	return unix.Close(u.fd)
}
