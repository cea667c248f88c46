package attack

import (
	"errors"
	"fmt"
	"time"

	"capgpu/bench/dataplane/service"
)

// footprint is the service's holdings, as the kernel reports them.
type footprint struct {
	descriptors int // of the manager and the driver
	memories    int // memory files of both without other users
	processes   int // children of the manager
	bytes       float64
}

// The allowed growth of a service that has done work meanwhile: memory that the
// manager makes in advance, a waiting gate or driver, garbage that is not yet
// collected.
const (
	aheadDescriptors = 40
	aheadProcesses   = 3
	aheadBytes       = 96 << 20
)

func footprintOf(svc *service.Service) (f footprint, err error) {
	driver, err := svc.DriverPID()
	if err != nil {
		return f, err
	}
	for _, pid := range []int{svc.ManagerPID(), driver} {
		h, holdErr := service.HoldingsOf(pid)
		bytes, memErr := service.Anonymous(pid)
		err = errors.Join(err, holdErr, memErr)
		f.descriptors += h.Descriptors
		f.memories += len(h.Memories)
		f.bytes += bytes
	}
	n, childErr := svc.Processes()
	f.processes = n
	return f, errors.Join(err, childErr)
}

// more reports the growth since before.
func (f footprint) more(before footprint) string {
	switch {
	case f.descriptors > before.descriptors+aheadDescriptors:
		return fmt.Sprintf("%d descriptors, %d of them memory, where there were %d and %d", f.descriptors, f.memories, before.descriptors, before.memories)
	case f.processes > before.processes+aheadProcesses:
		return fmt.Sprintf("%d processes where there were %d", f.processes, before.processes)
	case f.bytes > before.bytes+aheadBytes:
		return fmt.Sprintf("%.0f MiB of memory where there were %.0f", f.bytes/(1<<20), before.bytes/(1<<20))
	}
	return ""
}

// grown waits until the service holds no more than before, and returns the growth
// if there is some.
func grown(svc *service.Service, before footprint) (string, error) {
	for end := time.Now().Add(settle); ; time.Sleep(10 * time.Millisecond) {
		now, err := footprintOf(svc)
		if err != nil && time.Now().After(end) {
			return "", err
		}
		if more := now.more(before); err == nil && (more == "" || time.Now().After(end)) {
			return more, nil
		}
	}
}
