package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/tlog"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// Sizes in bytes, in the order of a frame. docs/audit.md is this table.
const (
	header = "capgpu audit log, version 1\n"

	frameHeadBytes = 8  // payload length, CRC-32C of those four bytes
	fixedBytes     = 22 // index, time, three text lengths
	chainBytes     = sha256.Size

	MaxKindBytes   = 64
	MaxTenantBytes = 128
	MaxDetailBytes = 1024

	maxPayloadBytes = fixedBytes + MaxKindBytes + MaxTenantBytes + MaxDetailBytes
	maxFrameBytes   = frameHeadBytes + maxPayloadBytes + chainBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checkText refuses texts that a record cannot hold.
func checkText(kind, tenant, detail string) error {
	switch {
	case kind == "" || len(kind) > MaxKindBytes:
		return gpuerr.New(gpuerr.Invalid, "kind has %d bytes; it must have 1 to %d", len(kind), MaxKindBytes)
	case len(tenant) > MaxTenantBytes:
		return gpuerr.New(gpuerr.Invalid, "tenant has %d bytes; it may have %d", len(tenant), MaxTenantBytes)
	case len(detail) > MaxDetailBytes:
		return gpuerr.New(gpuerr.Invalid, "detail has %d bytes; it may have %d", len(detail), MaxDetailBytes)
	}
	return nil
}

// appendPayload encodes a record. Its texts were checked.
func appendPayload(b []byte, r ddf.AuditRecord) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.Index)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Kind)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Tenant)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Detail)))
	b = append(b, r.Kind...)
	b = append(b, r.Tenant...)
	return append(b, r.Detail...)
}

// parsePayload is the inverse of appendPayload, and refuses everything else.
func parsePayload(b []byte) (ddf.AuditRecord, error) {
	if len(b) < fixedBytes {
		return ddf.AuditRecord{}, gpuerr.New(gpuerr.IO, "payload of %d bytes is too short", len(b))
	}

	kind := int(binary.LittleEndian.Uint16(b[16:]))
	tenant := int(binary.LittleEndian.Uint16(b[18:]))
	detail := int(binary.LittleEndian.Uint16(b[20:]))
	if fixedBytes+kind+tenant+detail != len(b) {
		return ddf.AuditRecord{}, gpuerr.New(gpuerr.IO, "text lengths %d, %d and %d do not fill a payload of %d bytes", kind, tenant, detail, len(b))
	}

	text := string(b[fixedBytes:])
	r := ddf.AuditRecord{
		Index:  binary.LittleEndian.Uint64(b),
		Time:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[8:]))).UTC(),
		Kind:   text[:kind],
		Tenant: text[kind : kind+tenant],
		Detail: text[kind+tenant:],
	}
	return r, checkText(r.Kind, r.Tenant, r.Detail)
}

func nextChain(chain [chainBytes]byte, payload []byte) [chainBytes]byte {
	h := sha256.New()
	h.Write(chain[:])
	h.Write(payload)
	return [chainBytes]byte(h.Sum(nil))
}

// RecordBytes is the size of a record in its file.
func RecordBytes(kind, tenant, detail string) uint64 { return uint64(frameBytes(kind, tenant, detail)) }

func frameBytes(kind, tenant, detail string) int64 {
	return int64(frameHeadBytes + fixedBytes + len(kind) + len(tenant) + len(detail) + chainBytes)
}

// appendFrame encodes the record at p as its frame and advances p over it.
func appendFrame(b []byte, p *position, r ddf.AuditRecord) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHeadBytes)...)
	b = appendPayload(b, r)
	payload := b[at+frameHeadBytes:]
	putFrameHead(b[at:], len(payload))
	p.advance(payload)
	return append(b, p.chain[:]...)
}

func putFrameHead(b []byte, payloadBytes int) {
	binary.LittleEndian.PutUint32(b, uint32(payloadBytes))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[:4], castagnoli))
}

// tree is the right edge of a Merkle tree: the roots of the perfect subtrees that
// the records so far make, largest first, one per 1 bit of their number.
type tree []tlog.Hash

// add appends the leaf of record number size. It never changes hashes that a
// copy of the slice shares: it makes a new one.
func (t *tree) add(size uint64, payload []byte) {
	hash := tlog.RecordHash(payload)
	edge := *t
	for ; size&1 == 1; size >>= 1 {
		hash = tlog.NodeHash(edge[len(edge)-1], hash)
		edge = edge[:len(edge)-1]
	}
	*t = append(edge[:len(edge):len(edge)], hash)
}

// root is RFC 6962's tree hash.
func (t tree) root() [32]byte {
	if len(t) == 0 {
		return sha256.Sum256(nil) // RFC 6962, section 2.1
	}
	root := t[len(t)-1]
	for i := len(t) - 2; i >= 0; i-- {
		root = tlog.NodeHash(t[i], root)
	}
	return root
}

// Format is one line for people, without any character that a terminal would obey.
func Format(r ddf.AuditRecord) string {
	tenant := ""
	if r.Tenant != "" { // else it is about none
		tenant = "tenant=" + plain(r.Tenant) + " "
	}
	return fmt.Sprintf("%d %s %s %s%s", r.Index, r.Time.Format(time.RFC3339Nano), plain(r.Kind), tenant, plain(r.Detail))
}

// plain quotes a text that is empty, not UTF-8, or has more than printable characters.
func plain(s string) string {
	if s == "" || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, c := range s {
		if !unicode.IsPrint(c) || c == '"' || c == '\\' {
			return strconv.Quote(s)
		}
	}
	return s
}
