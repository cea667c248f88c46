package iommu

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// OpKind is the kind of a domain's request to the kernel.
type OpKind uint8

const (
	// OpAttach puts the group into the domain: the kernel takes its devices out of
	// the host's domain and puts them into this one.
	OpAttach OpKind = iota + 1
	OpMap
	OpUnmap
	// OpClose takes the group out, and with it every mapping that is left.
	OpClose
)

func (k OpKind) String() string {
	switch k {
	case OpAttach:
		return "attach"
	case OpMap:
		return "map"
	case OpUnmap:
		return "unmap"
	case OpClose:
		return "close"
	}
	return fmt.Sprintf("OpKind(%d)", uint8(k))
}

// Op is one request of a domain to the kernel. Everything that the kernel does
// for it, it does on thread TID between Start and End, so that the kernel's own
// record can be compared with it.
type Op struct {
	Kind OpKind
	// Seq counts the operations of one domain, from 1. OpMap and OpUnmap may run side
	// by side.
	Seq uint64
	// TID is the thread, as this process's PID namespace numbers it. The goroutine is locked
	// to it during the operation.
	TID   int
	IOVA  IOVA   // only with OpMap and OpUnmap
	Bytes uint64 // only with OpMap and OpUnmap
	// Start and End are nanoseconds of CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns:
	// Start is taken before Began, End before Ended. End is 0 in Began.
	Start, End uint64
}

// Observer gets every operation of a domain, on the goroutine (and thread) that makes it. It
// must not block, nor call the domain.
type Observer interface {
	Began(op Op)
	// Ended is always called after Began, also for a failed operation.
	Ended(op Op, err error)
}

// observed runs do as op, on one thread.
func observed(o Observer, op Op, do func() error) error {
	if o == nil {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	op.TID, op.Start = unix.Gettid(), monotonic()
	o.Began(op)
	err := do()
	op.End = monotonic()
	o.Ended(op, err)
	return err
}
