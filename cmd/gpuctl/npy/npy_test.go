package npy

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file builds a .npy header of the given version by hand.
func file(major byte, dict string) []byte {
	b := append([]byte(magic), major, 0)
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)))
	}
	return append(b, dict...)
}

func TestReadHeader(t *testing.T) {
	for _, tc := range []struct {
		name, dict string
		want       Header
		err        string
	}{
		{name: "numpy 1-D", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }      \n", want: Header{F32, []uint64{5}}},
		{name: "numpy 2-D", dict: "{'descr': '<u4', 'fortran_order': False, 'shape': (3, 4), }\n", want: Header{U32, []uint64{3, 4}}},
		{name: "other key order, double quotes", dict: `{"shape": (7,), "fortran_order": False, "descr": "<i4"}`, want: Header{I32, []uint64{7}}},
		{name: "python 2 longs", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (5L, 2L), }", want: Header{F32, []uint64{5, 2}}},
		{name: "empty array", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", want: Header{F32, []uint64{0}}},
		{name: "doubles", dict: "{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }", want: Header{F64, []uint64{5}}},
		{name: "bytes", dict: "{'descr': '|u1', 'fortran_order': False, 'shape': (5,), }", want: Header{U8, []uint64{5}}},
		{name: "complex", dict: "{'descr': '<c8', 'fortran_order': False, 'shape': (5,), }", err: `element type "<c8" is not supported; convert with .astype, for instance to '<f4'`},
		{name: "big-endian", dict: "{'descr': '>f4', 'fortran_order': False, 'shape': (5,), }", err: `">f4" is not supported`},
		{name: "structured", dict: "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (5,), }", err: "structured arrays"},
		{name: "Fortran", dict: "{'descr': '<f4', 'fortran_order': True, 'shape': (5, 2), }", err: "ascontiguousarray"},
		{name: "3-D", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2, 2), }", err: "3 dimensions"},
		{name: "0-D", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", err: "0 dimensions"},
		{name: "overflowing shape", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", err: "larger than any file"},
		{name: "negative", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", err: "expected a number"},
		{name: "repeated key", dict: "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", err: "repeated key"},
		{name: "missing key", dict: "{'descr': '<f4', 'shape': (1,), }", err: "lacks"},
		{name: "trailing text", dict: "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", err: "follows"},
		{name: "empty", dict: "", err: "expected {"},
		{name: "no end", dict: "{'descr': '<f4'", err: "expected , or }"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, major := range []byte{1, 2} {
				r := bytes.NewReader(append(file(major, tc.dict), "DATA"...))
				h, err := ReadHeader(r)
				if tc.err != "" {
					require.ErrorContains(t, err, tc.err)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, tc.want, h)
				rest, _ := io.ReadAll(r)
				require.Equal(t, "DATA", string(rest), "the reader must stand at the first element")
			}
		})
	}
}

func TestReadHeaderFraming(t *testing.T) {
	_, err := ReadHeader(strings.NewReader("\x93NUMP"))
	require.ErrorIs(t, err, ErrNotNpy)
	_, err = ReadHeader(strings.NewReader("hello, world"))
	require.ErrorIs(t, err, ErrNotNpy)
	_, err = ReadHeader(bytes.NewReader(append([]byte(magic), 3, 0, 0, 0, 0, 0)))
	require.ErrorContains(t, err, "version 3.0")
	_, err = ReadHeader(bytes.NewReader(append([]byte(magic), 2, 0, 255, 255, 255, 255)))
	require.ErrorContains(t, err, "not plausible")
	_, err = ReadHeader(bytes.NewReader(file(1, "{}")[:9]))
	require.ErrorContains(t, err, "cut short")
}

func TestAppendHeaderRoundTrip(t *testing.T) {
	for _, h := range []Header{{F32, []uint64{1}}, {U32, []uint64{64 << 20}}, {I32, []uint64{3, 4}}} {
		b := AppendHeader(nil, h)
		require.Zero(t, len(b)%64)
		got, err := ReadHeader(bytes.NewReader(b))
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	require.Equal(t, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }",
		strings.TrimRight(string(AppendHeader(nil, Header{F32, []uint64{5}})), " \n"), "as numpy 1.x writes it")
}

func FuzzReadHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{F32, []uint64{3, 4}}))
	f.Add(file(2, "{'descr': '<i4', 'fortran_order': False, 'shape': (5,), }"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeader(bytes.NewReader(b))
		if err != nil {
			return
		}
		if n := h.Elements(); n > 1<<60 {
			t.Fatalf("%d elements were let through", n)
		}
		again, err := ReadHeader(bytes.NewReader(AppendHeader(nil, h)))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}
