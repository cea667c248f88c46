package dma

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
)

// Span is memory as a device sees it.
type Span struct {
	IOVA  uint64
	Bytes uint64
}

// String is the form in records: 0x100000000+2097152.
func (s Span) String() string { return fmt.Sprintf("%#x+%d", s.IOVA, s.Bytes) }

// Sum is an account of spans that does not depend on their order: their number,
// their bytes, and the sum, modulo 2^128, of the first half of each one's SHA-256
// (over address and length, 8 bytes little-endian each). Two different collections
// of spans with equal sums cannot be met by chance.
type Sum struct {
	Count, Bytes uint64
	hi, lo       uint64
}

// SumOf is the sum of some spans.
func SumOf(spans ...Span) (s Sum) {
	for _, span := range spans {
		s.Add(span)
	}
	return s
}

// Add counts one span.
func (s *Sum) Add(span Span) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], span.IOVA)
	binary.LittleEndian.PutUint64(b[8:], span.Bytes)
	h := sha256.Sum256(b[:])
	*s = s.Plus(Sum{1, span.Bytes, binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[8:])})
}

// Plus is the sum of both collections.
func (s Sum) Plus(o Sum) Sum {
	lo, carry := bits.Add64(s.lo, o.lo, 0)
	hi, _ := bits.Add64(s.hi, o.hi, carry)
	return Sum{s.Count + o.Count, s.Bytes + o.Bytes, hi, lo}
}

// Hash is the sum of the hashes, in 32 hexadecimal digits.
func (s Sum) Hash() string { return fmt.Sprintf("%016x%016x", s.hi, s.lo) }

func (s *Sum) setHash(text string) error {
	if len(text) != 32 {
		return fmt.Errorf("%q is no sum of 32 hexadecimal digits", text)
	}
	hi, err := strconv.ParseUint(text[:16], 16, 64)
	lo, err2 := strconv.ParseUint(text[16:], 16, 64)
	if err != nil || err2 != nil {
		return fmt.Errorf("%q is no sum of 32 hexadecimal digits", text)
	}
	s.hi, s.lo = hi, lo
	return nil
}
