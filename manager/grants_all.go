package manager

import (
	"context"
	"errors"

	"capgpu/gpuerr"
	"capgpu/schema"
)

// vectorsAtOnce is how many vectors All answers. Each is a descriptor of its message, which
// may have at most 253 (unix(7), SCM_RIGHTS), and messages should be short.
const vectorsAtOnce = 64

// All implements schema.DriverGrants_Server. It is one answer in place of one for each window
// and vector, because tenants wait while the driver starts. It gives and records the same as
// the single calls. It is answered once: each answer has many descriptors, and those that a
// driver does not read stay open in the manager.
func (s *grantServer) All(_ context.Context, call schema.DriverGrants_all) error {
	if s.askedAll.Swap(true) {
		return gpuerr.New(gpuerr.Denied, "all was asked before; ask for each window and vector")
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	g, err := res.NewGrants()
	if err != nil {
		return err
	}
	if err := errors.Join(s.setGrants(g), res.SetPool(s.pool()), res.SetLog(s.auditLog())); err != nil {
		return err
	}

	windows, err := res.NewWindows(int32(len(s.windows)))
	if err != nil {
		return err
	}

	for i, w := range s.windows {
		if err := s.setWindow(windows.At(i), w); err != nil {
			return err
		}
	}

	vectors, err := res.NewVectors(int32(min(len(s.vectors), vectorsAtOnce)))
	if err != nil {
		return err
	}

	for i := range vectors.Len() {
		if err := s.recordVector(i); err != nil {
			return err
		}
		to := vectors.At(i)
		if err := errors.Join(to.SetInterrupt(s.interrupt(i)), to.SetMemory(s.event(s.vectors[i]))); err != nil {
			return err
		}
	}

	return nil
}

// setWindow sets the answers of Mmio and Map for a window.
func (s *grantServer) setWindow(to schema.GrantedWindow, w *window) error {
	if err := s.recordWindow(w); err != nil {
		return err
	}
	if err := to.SetMmio(s.mmio(w)); err != nil {
		return err
	}

	fd, offset, err := w.fd()
	if errors.Is(err, gpuerr.Denied) { // reachable only by calls
		return nil
	}
	if err != nil {
		return err
	}

	to.SetBytes(w.spec.Bytes)
	to.SetOffset(offset)
	return to.SetMemory(s.descriptor(fd))
}
