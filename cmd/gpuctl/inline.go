package main

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"

	"capgpu/cmd/gpuctl/npy"
	"capgpu/program"
)

// inlineArgs makes the inline block of a launch. Named arguments go to the field of
// that name, the others to the remaining fields, in order. If the program does not
// describe its fields, the arguments are laid out one after the other, and each
// must state its type.
func inlineArgs(i info, args []string) ([]byte, error) {
	if len(i.Inline) == 0 && i.InlineBytes > 0 {
		return untypedInline(i, args)
	}

	values := make([]string, len(i.Inline))
	given := make([]bool, len(i.Inline))
	var unnamed []string
	for _, arg := range args {
		name, value, named := strings.Cut(arg, "=")
		if !named {
			unnamed = append(unnamed, arg)
			continue
		}
		n := slices.IndexFunc(i.Inline, func(f program.Field) bool { return f.Name == name })
		switch {
		case n < 0:
			return nil, usagef("--inline %s: %s takes %s", arg, i.Name, fieldsText(i.Inline))
		case given[n]:
			return nil, usagef("--inline %s: %s is given twice", arg, name)
		}
		values[n], given[n] = value, true
	}

	for _, arg := range unnamed {
		n := slices.Index(given, false)
		if n < 0 {
			return nil, usagef("--inline %s is one too many: %s takes %s", arg, i.Name, fieldsText(i.Inline))
		}
		values[n], given[n] = arg, true
	}

	if n := slices.Index(given, false); n >= 0 {
		return nil, usagef("%s takes %s; there is none for %s: use --inline %s=VALUE", i.Name, fieldsText(i.Inline), i.Inline[n].Name, i.Inline[n].Name)
	}

	block := make([]byte, i.InlineBytes)
	for n, f := range i.Inline {
		t, ok := npy.ParseDType(string(f.Type))
		if !ok || uint64(f.Off)+t.Bytes() > uint64(len(block)) {
			return nil, usagef("%s has a field %s that this gpuctl cannot fill", i.Name, f.Name)
		}

		text := values[n]
		if kind, rest, typed := strings.Cut(text, ":"); typed {
			if kind != string(f.Type) {
				return nil, usagef("--inline %s: %s is of type %s", text, f.Name, f.Type)
			}
			text = rest
		}

		bits, ok := parseValue(t, text)
		if !ok {
			return nil, usagef("--inline %s: %q is no %s value for %s", values[n], text, f.Type, f.Name)
		}

		putBits(block[f.Off:], t, bits)
	}

	return block, nil
}

func untypedInline(i info, args []string) ([]byte, error) {
	var block []byte
	for _, arg := range args {
		kind, text, _ := strings.Cut(arg, ":")
		t, known := npy.ParseDType(kind)
		if !known {
			return nil, usagef("--inline %s: %s does not tell the types of its inline arguments; write TYPE:VALUE, for instance f32:2.5", arg, i.Name)
		}
		bits, ok := parseValue(t, text)
		if !ok {
			return nil, usagef("--inline %s: %q is no %s value", arg, text, kind)
		}
		at := len(block)
		block = append(block, make([]byte, t.Bytes())...)
		putBits(block[at:], t, bits)
	}

	if len(block) != int(i.InlineBytes) {
		return nil, usagef("%s takes %d bytes of inline arguments, %d given: use --inline TYPE:VALUE once for each", i.Name, i.InlineBytes, len(block))
	}

	return block, nil
}

// fieldsText is "no inline arguments", or "n (u32) and eps (f32)".
func fieldsText(fields []program.Field) string {
	if len(fields) == 0 {
		return "no inline arguments"
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.Name+" ("+string(f.Type)+")")
	}
	return listText(names)
}

// parseValue reads a value of a type into the low bits.
func parseValue(t npy.DType, text string) (bits uint64, ok bool) {
	size := int(8 * t.Bytes())
	var err error
	switch t {
	case npy.F16:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		bits, ok = halfBits(f)
		return bits, err == nil && ok

	case npy.F32:
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		bits = uint64(math.Float32bits(float32(f)))

	case npy.F64:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		bits = math.Float64bits(f)

	case npy.U8, npy.U16, npy.U32, npy.U64:
		bits, err = strconv.ParseUint(text, 0, size)
	default:
		var i int64
		i, err = strconv.ParseInt(text, 0, size)
		bits = uint64(i)
	}

	return bits, err == nil
}

// halfBits is f as a 16-bit float, if that holds it exactly.
func halfBits(f float64) (uint64, bool) {
	for _, h := range []uint16{0, 0x8000, 0x7c00, 0xfc00} {
		if math.Float64bits(halfValue(h)) == math.Float64bits(f) {
			return uint64(h), true
		}
	}

	fraction, exponent := math.Frexp(math.Abs(f)) // fraction from 0.5 up to 1
	if math.IsNaN(f) || math.IsInf(f, 0) || exponent > 16 || exponent < -23 {
		return 0, false
	}

	h := uint16(0)
	if exponent < -13 {
		h = uint16(math.Ldexp(math.Abs(f), 24))
	} else {
		h = uint16(exponent+14)<<10 | uint16(math.Ldexp(fraction, 11))&0x3ff
	}

	if f < 0 {
		h |= 0x8000
	}

	return uint64(h), halfValue(h) == f
}

func putBits(b []byte, t npy.DType, bits uint64) {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], bits)
	copy(b[:t.Bytes()], all[:])
}
