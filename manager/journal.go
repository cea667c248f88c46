package manager

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"capgpu/audit/dma"
)

// A tenant that makes and frees buffers makes its driver map and unmap memory as fast as both
// can. So that this does not fill the log, a driver has a limited number of records of single
// mappings: a burst, and then one per recordInterval. Further mappings are counted, and the
// counts are a record of their own, at most one per summaryDelay.
const (
	recordBurst    = 256
	recordInterval = 250 * time.Millisecond
	summaryDelay   = time.Second
)

// mappings counts what happened to DMA memory.
type mappings struct {
	maps, mapBytes     uint64
	unmaps, unmapBytes uint64
	first, last        uint64 // generations of the maps
	mapSum, unmapSum   dma.Sum
}

func (m *mappings) add(n mappings) {
	if m.maps == 0 {
		m.first = n.first
	}
	if n.maps != 0 {
		m.last = n.last
	}
	m.maps, m.mapBytes = m.maps+n.maps, m.mapBytes+n.mapBytes
	m.unmaps, m.unmapBytes = m.unmaps+n.unmaps, m.unmapBytes+n.unmapBytes
	m.mapSum, m.unmapSum = m.mapSum.Plus(n.mapSum), m.unmapSum.Plus(n.unmapSum)
}

// journal records which memory the driver of one epoch reaches: each mapping has a record of
// its own or is counted in a dma.summary. Once the log has refused a record, each new mapping
// needs a record of its own before it exists again. So a log that cannot be written stops new
// grants, at the latest when the next summary is due. Memory that was freed stays freed. Its
// record follows later or, if the log never recovers, is counted as lost.
type journal struct {
	audit AuditLog
	log   *slog.Logger
	tag   string

	mu sync.Mutex
	// +checklocks:mu
	single bucket // records of single mappings
	// +checklocks:mu
	refused bool // the log refused the last record
	// +checklocks:mu
	pending mappings // since the last summary
	// +checklocks:mu
	timer *time.Timer // of the next summary; nil: none is due
	// +checklocks:mu
	closed bool

	flushing sync.WaitGroup // timers that are set or run
}

func newJournal(audit AuditLog, log *slog.Logger, tag string) *journal {
	return &journal{audit: audit, log: log, tag: tag, single: newBucket(recordBurst, recordInterval, time.Now())}
}

// mapped records memory that the driver is about to reach. If it fails, the driver must not
// get it.
func (j *journal) mapped(d *dmaMemory) error {
	d.sum = dma.SumOf(dma.Span{IOVA: uint64(d.iova), Bytes: d.bytes})
	if j.counted(mappings{maps: 1, mapBytes: d.bytes, first: d.generation, last: d.generation, mapSum: d.sum}, true) {
		return nil
	}
	return j.append("dma.map", fmt.Sprintf("%s iova=%#x bytes=%d generation=%d", j.tag, uint64(d.iova), d.bytes, d.generation))
}

// unmapped records memory that mapped has recorded and that the driver no longer reaches.
func (j *journal) unmapped(d *dmaMemory) {
	n := mappings{unmaps: 1, unmapBytes: d.bytes, unmapSum: d.sum}
	if j.counted(n, false) {
		return
	}
	if j.append("dma.unmap", fmt.Sprintf("%s iova=%#x bytes=%d generation=%d", j.tag, uint64(d.iova), d.bytes, d.generation)) != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.pending.add(n)
		j.armLocked()
	}
}

// undone records memory that the device could reach and the driver never heard of. Each call
// of a driver leaves at most one.
func (j *journal) undone(d *dmaMemory) {
	_ = j.append(dma.KindUndone, fmt.Sprintf("%s iova=%#x bytes=%d generation=%d", j.tag, uint64(d.iova), d.bytes, d.generation))
}

// counted counts n if it needs no record of its own. One that must be recorded (must) is not
// counted while the log refuses records.
func (j *journal) counted(n mappings, must bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.single.allow(time.Now()) {
		return false
	}
	if j.refused && must {
		return false
	}
	j.pending.add(n)
	j.armLocked()
	return true
}

// +checklocks:j.mu
func (j *journal) armLocked() {
	if j.timer != nil || j.closed {
		return
	}
	j.flushing.Add(1)
	j.timer = time.AfterFunc(summaryDelay, func() {
		defer j.flushing.Done()
		_ = j.flush() // refused records are due again
	})
}

// append writes a record, and notes whether the log accepts records.
func (j *journal) append(kind, detail string) error {
	_, err := j.audit.Append(kind, "", detail)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil && !j.refused {
		j.log.Warn("the audit log takes no records of DMA memory", "kind", kind, "err", err)
	}
	j.refused = err != nil
	return err
}

// flush records the counts.
func (j *journal) flush() error {
	j.mu.Lock()
	n := j.pending
	j.pending, j.timer = mappings{}, nil
	j.mu.Unlock()
	if n == (mappings{}) {
		return nil
	}

	detail := j.tag + " " + dma.Totals(n.mapSum, n.unmapSum)
	if n.maps > 0 {
		detail += fmt.Sprintf(" generations=%d-%d", n.first, n.last)
	}

	err := j.append("dma.summary", detail)
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		n.add(j.pending) // counted meanwhile
		j.pending = n
		j.armLocked()
	}

	return err
}

// close records the remaining counts. No mapping is left.
func (j *journal) close() {
	j.mu.Lock()
	j.closed = true
	if j.timer != nil && j.timer.Stop() {
		j.flushing.Done()
	}
	j.mu.Unlock()
	j.flushing.Wait()
	if err := j.flush(); err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.log.Warn("mappings that no record tells of", "maps", j.pending.maps, "mapBytes", j.pending.mapBytes,
			"unmaps", j.pending.unmaps, "unmapBytes", j.pending.unmapBytes, "err", err)
	}
}
