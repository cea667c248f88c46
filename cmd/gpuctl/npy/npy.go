// Package npy reads and writes the headers of NumPy's .npy files.
//
// It supports the arrays that gpuctl can pass to a program: little-endian floats
// and integers of 8 to 64 bits, one or two dimensions, C order, format versions 1.0
// and 2.0. It never reads the values: they follow the header in their memory
// layout, so a caller reads them straight into a mapped buffer.
//
// The format is NumPy Enhancement Proposal 1: the magic "\x93NUMPY", two version
// bytes, the length of the header (u16 in version 1, u32 in version 2), and a
// Python dictionary literal with the keys descr, fortran_order and shape.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
)

// DType is the type of an element.
type DType uint8

const (
	F32 DType = iota
	U32
	I32
	F16
	U16
	I16
	U8
	I8
	F64
	U64
	I64
)

// MaxElementBytes is the size of the largest DType.
const MaxElementBytes = 8

var dtypes = [...]struct {
	name, descr string
	bytes       uint64
}{
	F32: {"f32", "<f4", 4},
	U32: {"u32", "<u4", 4},
	I32: {"i32", "<i4", 4},
	F16: {"f16", "<f2", 2},
	U16: {"u16", "<u2", 2},
	I16: {"i16", "<i2", 2},
	U8:  {"u8", "|u1", 1},
	I8:  {"i8", "|i1", 1},
	F64: {"f64", "<f8", 8},
	U64: {"u64", "<u8", 8},
	I64: {"i64", "<i8", 8},
}

// String is "f32" and the like.
func (d DType) String() string { return dtypes[d].name }

// Bytes is the size of an element.
func (d DType) Bytes() uint64 { return dtypes[d].bytes }

// Names are the names of all types, in the order of the constants.
func Names() []string {
	var names []string
	for _, t := range dtypes {
		names = append(names, t.name)
	}
	return names
}

// ParseDType takes a name of Names.
func ParseDType(s string) (DType, bool) {
	for i, t := range dtypes {
		if s == t.name {
			return DType(i), true
		}
	}
	return 0, false
}

// Header describes the array that follows it.
type Header struct {
	DType DType
	Shape []uint64 // one or two dimensions
}

// Elements is the product of the shape. ReadHeader has checked that the elements'
// bytes fit in 63 bits.
func (h Header) Elements() uint64 {
	n := uint64(1)
	for _, d := range h.Shape {
		n *= d
	}
	return n
}

const magic = "\x93NUMPY"

// maxHeaderBytes bounds the header. NumPy's own limit is 10,000.
const maxHeaderBytes = 64 << 10

// ErrNotNpy means that the file does not start with the magic of the format.
var ErrNotNpy = errors.New("not a .npy file (the magic bytes are missing)")

// ReadHeader reads the header and leaves r at the first element.
func ReadHeader(r io.Reader) (Header, error) {
	var fixed [12]byte
	if _, err := io.ReadFull(r, fixed[:8]); err != nil || string(fixed[:6]) != magic {
		return Header{}, ErrNotNpy
	}

	var length uint32
	switch major := fixed[6]; major {
	case 1:
		if _, err := io.ReadFull(r, fixed[8:10]); err != nil {
			return Header{}, fmt.Errorf("the header is cut short: %w", err)
		}
		length = uint32(binary.LittleEndian.Uint16(fixed[8:]))
	case 2:
		if _, err := io.ReadFull(r, fixed[8:12]); err != nil {
			return Header{}, fmt.Errorf("the header is cut short: %w", err)
		}
		length = binary.LittleEndian.Uint32(fixed[8:])
	default:
		return Header{}, fmt.Errorf("format version %d.%d is not supported (1.0 and 2.0 are)", major, fixed[7])
	}

	if length > maxHeaderBytes {
		return Header{}, fmt.Errorf("a header of %d bytes is not plausible", length)
	}

	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, fmt.Errorf("the header is cut short: %w", err)
	}

	return parseDict(string(text))
}

// parseDict reads the dictionary literal. Every key must appear once.
func parseDict(text string) (Header, error) {
	s := scanner{rest: text}
	var h Header
	var haveDescr, haveOrder, haveShape bool
	if !s.take("{") {
		return h, s.fail("{")
	}

	for !s.take("}") {
		key, ok := s.quoted()
		if !ok || !s.take(":") {
			return h, s.fail("a key and a colon")
		}

		switch {
		case key == "descr" && !haveDescr:
			descr, ok := s.quoted()
			if !ok {
				return h, fmt.Errorf("structured arrays are not supported (only numbers)")
			}
			if h.DType, ok = dtypeOf(descr); !ok {
				return h, fmt.Errorf("element type %q is not supported; convert with .astype, for instance to '<f4'", descr)
			}
			haveDescr = true

		case key == "fortran_order" && !haveOrder:
			if s.take("True") {
				return h, fmt.Errorf("the array is in Fortran order; save numpy.ascontiguousarray(a)")
			}
			if !s.take("False") {
				return h, s.fail("True or False")
			}
			haveOrder = true

		case key == "shape" && !haveShape:
			shape, err := s.tuple()
			if err != nil {
				return h, err
			}
			h.Shape = shape
			haveShape = true

		default:
			return h, fmt.Errorf("unexpected or repeated key %q in the header", key)
		}

		if !s.take(",") && !s.peek("}") {
			return h, s.fail(", or }")
		}
	}

	if strings.Trim(s.rest, " \n") != "" {
		return h, fmt.Errorf("something follows the header's dictionary")
	}
	if !haveDescr || !haveOrder || !haveShape {
		return h, fmt.Errorf("the header lacks descr, fortran_order or shape")
	}

	return h, checkShape(h.Shape)
}

func checkShape(shape []uint64) error {
	if len(shape) < 1 || len(shape) > 2 {
		return fmt.Errorf("an array of %d dimensions is not supported (1 or 2 are); use .reshape(-1)", len(shape))
	}
	bytes := uint64(MaxElementBytes)
	for _, d := range shape {
		hi, lo := bits.Mul64(bytes, d)
		if hi != 0 || lo > 1<<62 {
			return fmt.Errorf("the shape %v is larger than any file", shape)
		}
		bytes = lo
	}
	return nil
}

func dtypeOf(descr string) (DType, bool) {
	for i, t := range dtypes {
		if descr == t.descr {
			return DType(i), true
		}
	}
	return 0, false
}

// scanner takes tokens off a string, skipping blanks before each.
type scanner struct{ rest string }

func (s *scanner) blanks() { s.rest = strings.TrimLeft(s.rest, " \t\n") }

func (s *scanner) peek(token string) bool {
	s.blanks()
	return strings.HasPrefix(s.rest, token)
}

func (s *scanner) take(token string) bool {
	if !s.peek(token) {
		return false
	}
	s.rest = s.rest[len(token):]
	return true
}

func (s *scanner) quoted() (string, bool) {
	for _, q := range []string{"'", `"`} {
		if s.take(q) {
			text, rest, ok := strings.Cut(s.rest, q)
			s.rest = rest
			return text, ok
		}
	}
	return "", false
}

// tuple reads "(3,)", "(3, 4)" or "()".
func (s *scanner) tuple() ([]uint64, error) {
	if !s.take("(") {
		return nil, s.fail("a tuple")
	}

	var shape []uint64
	for !s.take(")") {
		s.blanks()
		digits := 0
		for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
			digits++
		}

		n, err := strconv.ParseUint(s.rest[:digits], 10, 64)
		if err != nil {
			return nil, s.fail("a number")
		}

		s.rest = s.rest[digits:]
		s.take("L") // Python 2 wrote long integers this way
		shape = append(shape, n)
		if len(shape) > 32 {
			return nil, fmt.Errorf("the shape has too many dimensions")
		}
		if !s.take(",") && !s.peek(")") {
			return nil, s.fail(", or )")
		}
	}

	return shape, nil
}

func (s *scanner) fail(want string) error {
	at := s.rest
	if len(at) > 20 {
		at = at[:20]
	}
	return fmt.Errorf("the header is malformed: expected %s at %q", want, at)
}

// AppendHeader appends the header of h in format version 1.0, padded so that
// the elements start at a multiple of 64.
func AppendHeader(dst []byte, h Header) []byte {
	var shape strings.Builder
	for i, d := range h.Shape {
		if i > 0 {
			shape.WriteString(", ")
		}
		fmt.Fprint(&shape, d)
	}

	if len(h.Shape) == 1 {
		shape.WriteString(",")
	}

	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtypes[h.DType].descr, shape.String())
	const fixed = len(magic) + 4
	total := (fixed + len(dict) + 1 + 63) &^ 63
	dict += strings.Repeat(" ", total-fixed-len(dict)-1) + "\n"
	dst = append(dst, magic...)
	dst = append(dst, 1, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(dict)))
	return append(dst, dict...)
}
