package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"capgpu/ddf"
)

// The header of every segment but the first: a line, the segment's number, the
// number of records before it, the chain after the last of them, the right edge
// of their tree, and the SHA-256 of all that. docs/audit.md is this table.
const (
	continued           = "capgpu audit log, continued\n" // as long as header
	continuedFixedBytes = len(continued) + 8 + 8 + chainBytes
)

// position is a place between two records: all that the next one depends on.
type position struct {
	off     int64            // in the segment's file
	segment uint64           // the segment, from 1
	first   uint64           // index of the segment's first record
	size    uint64           // records before it
	chain   [chainBytes]byte // hash over the headers and every record before it
	tree    tree
	noted   uint64 // segments up to this number were removed, say the records before it
}

// start is the position after the header of the first segment.
func start() position {
	return position{off: int64(len(header)), segment: 1, chain: sha256.Sum256([]byte(header))}
}

// follow is the position at the beginning of the segment after p's, and the
// header of that segment.
func (p *position) follow() (position, []byte) {
	b := make([]byte, 0, continuedFixedBytes+len(p.tree)*tlog.HashSize+chainBytes)
	b = append(b, continued...)
	b = binary.LittleEndian.AppendUint64(b, p.segment+1)
	b = binary.LittleEndian.AppendUint64(b, p.size)
	b = append(b, p.chain[:]...)
	for _, h := range p.tree {
		b = append(b, h[:]...)
	}
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	return position{off: int64(len(b)), segment: p.segment + 1, first: p.size, size: p.size, chain: sum, tree: p.tree, noted: p.noted}, b
}

// edgeBytes is how long the tree's edge is in the header of a segment after size records.
func edgeBytes(size uint64) int { return bits.OnesCount64(size) * tlog.HashSize }

// parseContinued is the inverse of follow: it returns the position that the header leads to.
// The second result says what is wrong with the header otherwise.
func parseContinued(b []byte) (position, string) {
	segment := binary.LittleEndian.Uint64(b[len(continued):])
	size := binary.LittleEndian.Uint64(b[len(continued)+8:])
	edge := b[continuedFixedBytes : len(b)-chainBytes]
	before := position{segment: segment - 1, size: size, chain: [chainBytes]byte(b[len(continued)+16:])}
	for ; len(edge) > 0; edge = edge[tlog.HashSize:] {
		before.tree = append(before.tree, tlog.Hash(edge[:tlog.HashSize]))
	}

	at, again := before.follow()
	switch {
	case string(again) != string(b):
		return position{}, "its header does not match the checksum of the header"
	case segment < 2 || size < segment-1: // a segment has at least one record
		return position{}, "its header is impossible"
	}

	return at, ""
}

// advance moves p over a record.
func (p *position) advance(payload []byte) {
	p.tree.add(p.size, payload)
	p.advanceChain(payload)
}

// advanceChain is advance for a position without a tree.
func (p *position) advanceChain(payload []byte) {
	p.chain = nextChain(p.chain, payload)
	p.size++
	p.off += int64(frameHeadBytes + len(payload) + chainBytes)
}

func (p *position) head() ddf.AuditHead { return ddf.AuditHead{Size: p.size, Root: p.tree.root()} }
