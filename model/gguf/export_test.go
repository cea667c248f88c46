package gguf

import (
	"maps"
	"slices"
	"testing"
)

// Rewrite is another file's parts with some metadata changed; nil removes a key.
func Rewrite(t testing.TB, h *Header, changes map[string]any) []byte {
	t.Helper()
	var p printer
	for _, key := range slices.Sorted(maps.Keys(h.values)) {
		if _, changed := changes[key]; !changed {
			p.key(key, h.values[key].typ)
			p.Write(h.values[key].raw)
		}
	}

	for key, v := range changes {
		switch v := v.(type) {
		case nil:
		case string:
			p.setText(key, v)

		case uint32:
			p.setUint(key, int(v))
		case float32:
			p.setFloat(key, v)

		case bool:
			p.setBool(key, v)
		case []uint32:
			p.setArray(key, typeUint32, len(v))
			for _, x := range v {
				p.u32(x)
			}

		case []int32:
			p.setArray(key, typeInt32, len(v))
			for _, x := range v {
				p.u32(uint32(x))
			}

		case []float32:
			p.setArray(key, typeFloat32, len(v))
			for range v {
				p.u32(0)
			}

		default:
			t.Fatalf("%s: %T", key, v)
		}
	}

	var front printer
	front.WriteString(magic)
	front.u32(3)
	front.u64(uint64(len(h.Tensors)))
	front.u64(p.entries)
	front.Write(p.Bytes())
	end := uint64(0)
	for _, x := range h.Tensors {
		front.text(x.Name)
		front.u32(uint32(len(x.Dims)))
		for _, d := range x.Dims {
			front.u64(d)
		}
		front.u32(x.Type)
		front.u64(x.at)
		end = max(end, x.at+x.bytes)
	}

	front.Write(make([]byte, gap(uint64(front.Len()))))
	data := make([]byte, end)
	for _, x := range h.Tensors {
		copy(data[x.at:], x.Data)
	}

	front.Write(data)
	return front.Bytes()
}
