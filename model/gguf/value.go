package gguf

import (
	"math"
	"math/bits"

	"capgpu/gpuerr"
	"capgpu/model"
)

// The types of metadata values.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// sizes of the values that have one.
var sizes = [...]uint64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// maxDepth bounds the nesting of arrays.
const maxDepth = 4

// The tensor types of ggml that this package reads.
var elements = map[uint32]model.Type{
	0: model.F32, 1: model.F16, 2: model.Q4_0, 3: model.Q4_1, 6: model.Q5_0, 7: model.Q5_1, 8: model.Q8_0,
	10: model.Q2_K, 11: model.Q3_K, 12: model.Q4_K, 13: model.Q5_K, 14: model.Q6_K,
	20: model.IQ4_NL, 23: model.IQ4_XS, 30: model.BF16, 39: model.MXFP4,
}

func elementOf(ggml uint32) (model.Type, bool) {
	t, ok := elements[ggml]
	return t, ok
}

// typeNames are the other tensor types of ggml that occur in files; this package
// refuses them.
var typeNames = map[uint32]string{
	9: "q8_1", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s", 21: "iq3_s", 22: "iq2_s",
	24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 29: "iq1_m", 34: "tq1_0", 35: "tq2_0",
}

// value is one value of the metadata, in place.
type value struct {
	typ uint32
	raw []byte
}

// skip steps over a value and allocates nothing.
func skip(c *cursor, typ uint32, key string, depth int) {
	switch {
	case typ == typeString:
		c.bytes(key)

	case typ == typeArray:
		of, n := c.u32(key), c.u64(key)
		if c.err != nil {
			return
		}
		if depth == maxDepth {
			c.failf("%s: arrays in arrays deeper than %d", key, maxDepth)
			return
		}
		if of < uint32(len(sizes)) && sizes[of] != 0 {
			hi, lo := bits.Mul64(n, sizes[of])
			if hi != 0 {
				lo = math.MaxUint64
			}
			c.take(lo, key)
			return
		}
		// A string is 8 bytes or more, an array 12: this ends with the file.
		if n > c.left()/8 {
			c.failf("%s: %d elements in the %d bytes that are left", key, n, c.left())
			return
		}
		for i := uint64(0); i < n && c.err == nil; i++ {
			skip(c, of, key, depth+1)
		}

	case typ < uint32(len(sizes)):
		c.take(sizes[typ], key)
	default:
		c.failf("%s: there is no type %d of metadata", key, typ)
	}
}

func wrong(key string, want string, v value) error {
	return gpuerr.New(gpuerr.Invalid, "%s: is of type %d, and not %s", key, v.typ, want)
}

// integer is a scalar of any integer type.
func (v value) integer() (n uint64, negative, ok bool) {
	signed := func(i int64) (uint64, bool, bool) { return uint64(i), i < 0, true }
	switch v.typ {
	case typeUint8:
		return uint64(v.raw[0]), false, true

	case typeInt8:
		return signed(int64(int8(v.raw[0])))
	case typeUint16:
		return uint64(le.Uint16(v.raw)), false, true

	case typeInt16:
		return signed(int64(int16(le.Uint16(v.raw))))
	case typeUint32:
		return uint64(le.Uint32(v.raw)), false, true

	case typeInt32:
		return signed(int64(int32(le.Uint32(v.raw))))
	case typeUint64:
		return le.Uint64(v.raw), false, true

	case typeInt64:
		return signed(int64(le.Uint64(v.raw)))
	}

	return 0, false, false
}

// uint is an integer of at most the given size; ok is false if there is no such
// key. An array, with one element for each layer, is accepted if all elements are
// equal.
func (h *Header) uint(key string, most uint64) (n uint64, ok bool, err error) {
	v, ok := h.values[key]
	if !ok {
		return 0, false, nil
	}

	if v.typ == typeArray {
		if v, err = same(key, v); err != nil {
			return 0, false, err
		}
	}

	n, negative, ok := v.integer()
	if !ok {
		return 0, false, wrong(key, "an integer", v)
	}
	if negative {
		return 0, false, gpuerr.New(gpuerr.Invalid, "%s: %d is negative", key, int64(n))
	}
	if n > most {
		return 0, false, gpuerr.New(gpuerr.Invalid, "%s: %d is more than %d", key, n, most)
	}

	return n, true, nil
}

// same is the common element of an array of integers.
func same(key string, v value) (value, error) {
	c := &cursor{data: v.raw}
	of, n := c.u32(key), c.u64(key)
	if c.err != nil || of >= uint32(len(sizes)) || sizes[of] == 0 || n == 0 || n > model.MaxLayers {
		return value{}, gpuerr.New(gpuerr.Invalid, "%s: is no array of a number for each layer", key)
	}
	first := value{of, c.take(sizes[of], key)}
	for i := uint64(1); i < n && c.err == nil; i++ {
		if next := c.take(sizes[of], key); next != nil && string(next) != string(first.raw) {
			return value{}, gpuerr.New(gpuerr.Invalid, "%s: differs between layers, which is not supported", key)
		}
	}
	return first, c.err
}

func (h *Header) float(key string) (x float64, ok bool, err error) {
	v, ok := h.values[key]
	if !ok {
		return 0, false, nil
	}
	switch v.typ {
	case typeFloat32:
		return float64(math.Float32frombits(le.Uint32(v.raw))), true, nil
	case typeFloat64:
		return math.Float64frombits(le.Uint64(v.raw)), true, nil
	}
	if n, negative, ok := v.integer(); ok && !negative {
		return float64(n), true, nil
	}
	return 0, false, wrong(key, "a number", v)
}

func (h *Header) bool(key string, absent bool) (bool, error) {
	v, ok := h.values[key]
	if !ok {
		return absent, nil
	}
	if v.typ != typeBool {
		return false, wrong(key, "a truth value", v)
	}
	return v.raw[0] != 0, nil
}

// text is a copy of a string of at most the given size; "" if there is none.
func (h *Header) text(key string, most int) (string, error) {
	v, ok := h.values[key]
	if !ok {
		return "", nil
	}
	if v.typ != typeString {
		return "", wrong(key, "a string", v)
	}
	c := &cursor{data: v.raw}
	b := c.bytes(key)
	if len(b) > most {
		c.failf("%s: %d bytes are more than %d", key, len(b), most)
		return "", c.err
	}
	return string(b), c.err
}

// array is a cursor on the elements of an array of one of the types.
func (h *Header) array(key, what string, most uint64, types ...uint32) (c *cursor, n uint64, err error) {
	v, ok := h.values[key]
	if !ok {
		return nil, 0, nil
	}
	if v.typ != typeArray {
		return nil, 0, wrong(key, what, v)
	}

	c = &cursor{data: v.raw}
	of, n := c.u32(key), c.u64(key)
	if c.err == nil && n > most {
		c.failf("%s: %d elements are more than %d", key, n, most)
	}

	for _, t := range types {
		if of != t {
			continue
		}
		if least := max(sizes[t], 1); c.err == nil && n > c.left()/least {
			c.failf("%s: %d elements in %d bytes", key, n, c.left())
		}
		return c, n, c.err
	}

	if c.err != nil {
		return nil, 0, c.err
	}

	return nil, 0, gpuerr.New(gpuerr.Invalid, "%s: is an array of type %d, and not %s", key, of, what)
}

// texts copies all strings of an array, into one piece of memory.
func (h *Header) texts(key string, most uint64) ([][]byte, error) {
	c, n, err := h.array(key, "an array of strings", most, typeString)
	if err != nil || c == nil {
		return nil, err
	}
	if n > c.left()/8 {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: %d strings in %d bytes", key, n, c.left())
	}

	out := make([][]byte, n)
	all := make([]byte, 0, c.left()-8*n)
	for i := range out {
		b := c.bytes(key)
		from := len(all)
		all = append(all, b...)
		out[i] = all[from:len(all):len(all)]
	}

	return out, c.err
}
