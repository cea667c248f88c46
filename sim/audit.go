package sim

import (
	"errors"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// auditLog is the manager's log. It only counts, and its disk may be full.
type auditLog struct {
	mu    sync.Mutex
	size  uint64
	full  bool
	kinds map[string]int
}

var (
	errDisk       = errors.New("write audit.log: no space left on device")
	errHostMemory = gpuerr.New(gpuerr.IO, "make DMA memory: cannot allocate memory")
)

// Append implements manager.AuditLog.
func (l *auditLog) Append(kind, _, _ string) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return 0, errDisk
	}
	if l.kinds == nil {
		l.kinds = map[string]int{}
	}
	l.kinds[kind]++
	l.size++
	return l.size - 1, nil
}

// Snapshot implements manager.AuditLog.
func (l *auditLog) Snapshot(uint64, int) ([]ddf.AuditRecord, error) { return nil, nil }

// Head implements manager.AuditLog.
func (l *auditLog) Head() (ddf.AuditHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ddf.AuditHead{Size: l.size}, nil
}

// Sync implements manager.AuditLog.
func (l *auditLog) Sync() error { return nil }

// Close implements manager.AuditLog.
func (l *auditLog) Close() error { return nil }

func (l *auditLog) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}
