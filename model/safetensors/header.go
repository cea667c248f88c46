package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"capgpu/gpuerr"
	"capgpu/model"
)

const (
	maxHeader  = 100 << 20 // bytes, as in the reference implementation
	maxTensors = 1 << 16
	maxDims    = 8
	maxName    = 256 // bytes
)

// types are the supported types.
var types = map[string]model.Type{"F32": model.F32, "F16": model.F16, "BF16": model.BF16}

// tensor is one of a file.
type tensor struct {
	name, typ string
	shape     []uint64
	data      []byte
	at, end   uint64
}

// parse reads the header of a file: its tensors by their names.
func parse(data []byte) (map[string]*tensor, error) {
	if len(data) < 8 {
		return nil, gpuerr.New(gpuerr.Invalid, "header: a file of %d bytes has none", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > uint64(len(data)-8) || n > maxHeader {
		return nil, gpuerr.New(gpuerr.Invalid, "header: %d bytes in a file of %d; at most %d are read", n, len(data), maxHeader)
	}
	all, err := entries(bytes.Clone(data[8:][:n]))
	if err != nil {
		return nil, err
	}
	return all, place(all, data[8+n:])
}

// entry is a tensor in the header.
type entry struct {
	Type    string    `json:"dtype"`
	Shape   shape     `json:"shape"`
	Offsets [2]uint64 `json:"data_offsets"`
}

// shape is a short list of numbers.
type shape []uint64

func (s *shape) UnmarshalJSON(b []byte) error {
	if bytes.Count(b, []byte(",")) >= maxDims {
		return fmt.Errorf("more than %d dimensions", maxDims)
	}
	return json.Unmarshal(b, (*[]uint64)(s))
}

// entries reads the header's JSON, an object without duplicate names.
func entries(header []byte) (map[string]*tensor, error) {
	d := json.NewDecoder(bytes.NewReader(header))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, gpuerr.New(gpuerr.Invalid, "header: is no object of JSON")
	}

	all := map[string]*tensor{}
	meta := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, gpuerr.New(gpuerr.Invalid, "header: %v", err)
		}

		name := key.(string)
		if name == "__metadata__" {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil || meta {
				return nil, gpuerr.New(gpuerr.Invalid, "header: __metadata__: twice, or %v", err)
			}
			meta = true
			continue
		}

		if len(name) > maxName || len(all) == maxTensors {
			return nil, gpuerr.New(gpuerr.Invalid, "header: tensor %.40q: a name of more than %d bytes, or more than %d tensors", name, maxName, maxTensors)
		}
		if all[name] != nil {
			return nil, gpuerr.New(gpuerr.Invalid, "tensor %s: is there twice", name)
		}

		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, gpuerr.New(gpuerr.Invalid, "tensor %s: %v", name, err)
		}

		all[name] = &tensor{name: name, typ: e.Type, shape: e.Shape, at: e.Offsets[0], end: e.Offsets[1]}
	}

	if _, err := d.Token(); err != nil {
		return nil, gpuerr.New(gpuerr.Invalid, "header: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, gpuerr.New(gpuerr.Invalid, "header: something follows its object")
	}

	return all, nil
}

// place finds each tensor's bytes. No two share any.
func place(all map[string]*tensor, data []byte) error {
	order := make([]*tensor, 0, len(all))
	for _, t := range all {
		if t.at > t.end || t.end > uint64(len(data)) {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: data_offsets %d to %d of %d bytes", t.name, t.at, t.end, len(data))
		}
		t.data = data[t.at:t.end:t.end]
		if typ, ok := types[t.typ]; ok {
			size, err := sizeOf(typ, t.shape)
			if err != nil || size != t.end-t.at {
				return gpuerr.New(gpuerr.Invalid, "tensor %s: %d bytes for %d elements of %s", t.name, t.end-t.at, t.shape, t.typ)
			}
		}
		order = append(order, t)
	}

	slices.SortFunc(order, func(a, b *tensor) int {
		switch {
		case a.at != b.at && a.at < b.at:
			return -1
		case a.at != b.at:
			return 1
		}
		return bytes.Compare([]byte(a.name), []byte(b.name))
	})

	end, last := uint64(0), ""
	for _, t := range order {
		if t.end > t.at && t.at < end {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: lies over tensor %s", t.name, last)
		}
		if t.end > t.at {
			end, last = t.end, t.name
		}
	}

	return nil
}

// sizeOf is the bytes of a tensor.
func sizeOf(typ model.Type, dims []uint64) (uint64, error) {
	_, bytes := typ.Block()
	n := uint64(bytes)
	for _, d := range dims {
		hi, lo := bits.Mul64(n, d)
		if hi != 0 {
			return 0, gpuerr.New(gpuerr.Invalid, "dimensions %d are not possible", dims)
		}
		n = lo
	}
	return n, nil
}
