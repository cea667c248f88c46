package fake

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

const (
	maxKindBytes   = 64
	maxDetailBytes = 1024
	maxSnapshot    = 1024 // records in one answer
)

// Log is the fake ddf.HardwareAuditLog: records in memory under an RFC 6962
// Merkle tree.
type Log struct {
	revoked <-chan struct{}
	limit   uint64

	mu sync.Mutex
	// +checklocks:mu
	used uint64
	// +checklocks:mu
	records []ddf.AuditRecord
	// +checklocks:mu
	hashes hashList // in tlog's storage order
}

type hashList []tlog.Hash

// ReadHashes implements tlog.HashReader.
func (l hashList) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		if x < 0 || x >= int64(len(l)) {
			return nil, gpuerr.New(gpuerr.Internal, "audit hash %d of %d does not exist", x, len(l))
		}
		out[i] = l[x]
	}
	return out, nil
}

func newLog(limit uint64, revoked <-chan struct{}) *Log { return &Log{limit: limit, revoked: revoked} }

// Append implements ddf.HardwareAuditLog.
func (l *Log) Append(kind, detail string) error {
	switch {
	case isClosed(l.revoked):
		return errRevoked
	case kind == "" || len(kind) > maxKindBytes:
		return gpuerr.New(gpuerr.Invalid, "kind has %d bytes; it must have 1 to %d", len(kind), maxKindBytes)
	case len(detail) > maxDetailBytes:
		return gpuerr.New(gpuerr.Invalid, "detail has %d bytes; it may have %d", len(detail), maxDetailBytes)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	record := ddf.AuditRecord{Index: uint64(len(l.records)), Time: time.Now(), Kind: kind, Detail: detail}
	leaf := encodeRecord(record)
	if uint64(len(leaf)) > l.limit-l.used {
		return gpuerr.Refused("auditBytes", uint64(len(leaf)), l.limit-l.used)
	}

	more, err := tlog.StoredHashes(int64(record.Index), leaf, l.hashes)
	if err != nil {
		return gpuerr.New(gpuerr.Internal, "hash audit record %d: %v", record.Index, err)
	}

	l.used += uint64(len(leaf))
	l.records = append(l.records, record)
	l.hashes = append(l.hashes, more...)
	return nil
}

// Snapshot implements ddf.HardwareAuditLog. It answers at most 1,024 records.
func (l *Log) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	if isClosed(l.revoked) {
		return nil, errRevoked
	}
	if max <= 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "max is %d; ask for at least one record", max)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	size := uint64(len(l.records))
	if from >= size {
		return nil, nil
	}
	to := min(size, from+uint64(min(max, maxSnapshot)))
	return append([]ddf.AuditRecord(nil), l.records[from:to]...), nil
}

// Verify implements ddf.HardwareAuditLog: it hashes every record again.
func (l *Log) Verify() (ddf.AuditHead, error) {
	if isClosed(l.revoked) {
		return ddf.AuditHead{}, errRevoked
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	size := int64(len(l.records))
	if size == 0 {
		// RFC 6962, section 2.1: the hash of an empty tree is the hash of an empty string.
		return ddf.AuditHead{Root: sha256.Sum256(nil)}, nil
	}

	for i, record := range l.records {
		if l.hashes[tlog.StoredHashIndex(0, int64(i))] != tlog.RecordHash(encodeRecord(record)) {
			return ddf.AuditHead{}, gpuerr.New(gpuerr.Internal, "audit record %d was altered", i)
		}
	}

	root, err := tlog.TreeHash(size, l.hashes)
	if err != nil {
		return ddf.AuditHead{}, gpuerr.New(gpuerr.Internal, "hash the audit tree: %v", err)
	}

	return ddf.AuditHead{Size: uint64(size), Root: root}, nil
}

// encodeRecord is the leaf of a record: every field, each string with its length.
func encodeRecord(r ddf.AuditRecord) []byte {
	b := binary.LittleEndian.AppendUint64(nil, r.Index)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Time.UnixNano()))
	for _, s := range [...]string{r.Kind, r.Tenant, r.Detail} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

var _ ddf.HardwareAuditLog = (*Log)(nil)
