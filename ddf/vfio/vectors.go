package vfio

import (
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	uapi "capgpu/internal/uapi/vfio"
)

// vector is one interrupt vector of one epoch. vfio cannot mask MSI: a masked vector raises
// another eventfd, which is neither waited for nor read.
type vector struct {
	trigger int // eventfd that the driver holds too: nothing here reads or writes it
	parking int
	masked  bool
}

// chooseVectors finds the kind of interrupts that has as many as are granted.
func (f *Function) chooseVectors(kinds uint32) (index uint32, err error) {
	if f.vectorCount == 0 {
		return uapi.IRQIndexMSI, nil
	}

	most := uint32(0)
	for _, index := range []uint32{uapi.IRQIndexMSIX, uapi.IRQIndexMSI} {
		if index >= kinds {
			continue
		}
		info, err := f.kernel.IRQInfo(f.fd, index)
		if err != nil {
			return 0, uapi.Error("ask about interrupts", err)
		}
		if info.Flags&uapi.IRQEventFD == 0 {
			continue
		}
		if uint64(info.Count) >= uint64(f.vectorCount) {
			return index, nil
		}
		most = max(most, info.Count)
	}

	return 0, gpuerr.New(gpuerr.Invalid, "vectors: %s has %d message-signalled interrupts, not %d (wired ones are not granted: they may be shared)", f.identity.PCIAddress, most, f.vectorCount)
}

// armLocked makes fresh eventfds and has the kernel raise them. Counts left in those of an
// earlier epoch are dropped.
//
// +checklocks:f.opMu
func (f *Function) armLocked() error {
	if f.vectorCount == 0 {
		return nil
	}

	vectors, err := newVectors(f.vectorCount)
	if err != nil {
		return err
	}

	fds := make([]int32, len(vectors))
	for i, v := range vectors {
		fds[i] = int32(v.trigger)
	}

	if err := f.setTrigger(f.irqIndex, 0, fds); err != nil {
		return errors.Join(uapi.Error("arm the interrupts", err), closeVectors(vectors))
	}

	f.vectors = vectors
	return nil
}

func newVectors(count int) (vectors []*vector, err error) {
	for range count {
		v := &vector{trigger: -1, parking: -1}
		vectors = append(vectors, v)
		for _, fd := range []*int{&v.trigger, &v.parking} {
			if *fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
				*fd = -1
				return nil, errors.Join(uapi.Error("make an eventfd", err), closeVectors(vectors))
			}
		}
	}
	return vectors, nil
}

// disarmLocked takes the eventfds from the kernel: no interrupt comes any more.
//
// +checklocks:f.opMu
func (f *Function) disarmLocked() error {
	if f.vectors == nil {
		return nil
	}
	f.sampleLocked() // the kernel's counts go with its interrupts
	err := f.kernel.SetIRQs(f.fd, uapi.IRQSet{Flags: uapi.IRQDataNone | uapi.IRQActionTrigger, Index: f.irqIndex}, nil)
	if err != nil {
		return uapi.Error("disarm the interrupts", err)
	}
	for i := range f.counts {
		f.counts[i].restart()
	}
	vectors := f.vectors
	f.vectors = nil
	return closeVectors(vectors)
}

func closeVectors(vectors []*vector) error {
	var errs []error
	for _, v := range vectors {
		for _, fd := range []*int{&v.trigger, &v.parking} {
			if *fd >= 0 {
				errs = append(errs, unix.Close(*fd))
				*fd = -1
			}
		}
	}
	return errors.Join(errs...)
}

func (f *Function) setTrigger(index, start uint32, fds []int32) error {
	return f.kernel.SetIRQs(f.fd, uapi.IRQSet{
		Flags: uapi.IRQDataEventFD | uapi.IRQActionTrigger, Index: index, Start: start, Count: uint32(len(fds)),
	}, fds)
}

// +checklocks:f.opMu
func (f *Function) vectorLocked(i int) (*vector, error) {
	switch {
	case i < 0 || i >= f.vectorCount:
		return nil, gpuerr.New(gpuerr.Invalid, "the function has no vector %d", i)
	case f.state == closed:
		return nil, errClosed
	case f.vectors == nil:
		return nil, gpuerr.New(gpuerr.Busy, "the vectors of %s are not armed: no epoch has begun", f.identity.PCIAddress)
	}
	return f.vectors[i], nil
}

// EventFD returns a descriptor of the vector's eventfd, which the caller owns. It is of this
// epoch: the next Begin makes another one.
func (f *Function) EventFD(i int) (int, error) {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	v, err := f.vectorLocked(i)
	if err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(uintptr(v.trigger), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, uapi.Error("duplicate an eventfd", err)
	}
	return fd, nil
}

// SetMask stops and resumes a vector. The unmask always signals the eventfd once: while one
// eventfd is put in the other's place, the kernel lets an interrupt without a mask of its own
// pass unseen (vfio_msi_set_vector_signal). The kernel makes the signal: a driver that clears
// the O_NONBLOCK which it shares with us, and fills the counter, would block our write(2) for
// ever, while eventfd_signal (fs/eventfd.c, Linux 6.12) never waits.
func (f *Function) SetMask(i int, masked bool) error {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	v, err := f.vectorLocked(i)
	if err != nil {
		return err
	}
	if err := f.removal.err(); err != nil {
		return err
	}
	if v.masked == masked {
		return nil
	}

	to := v.trigger
	if masked {
		to = v.parking
	}
	if err := f.setTrigger(f.irqIndex, uint32(i), []int32{int32(to)}); err != nil {
		return uapi.Error("mask or unmask an interrupt", err)
	}

	v.masked = masked
	if masked {
		return nil
	}

	raise := uapi.IRQSet{Flags: uapi.IRQDataNone | uapi.IRQActionTrigger, Index: f.irqIndex, Start: uint32(i), Count: 1}
	if err := f.kernel.SetIRQs(f.fd, raise, nil); err != nil {
		return uapi.Error("raise an interrupt", err)
	}

	return nil
}
