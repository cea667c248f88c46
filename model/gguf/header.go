package gguf

import (
	"math/bits"
	"slices"

	"capgpu/gpuerr"
)

const (
	magic = "GGUF"
	// The bounds of the parts, for every file.
	maxFront     = 512 << 20 // bytes before the tensors' data
	maxEntries   = 1 << 16   // of metadata
	maxTensors   = 1 << 16
	maxKey       = 1 << 16 // bytes; as the format says
	maxName      = 64      // bytes; GGML_MAX_NAME
	maxAlignment = 1 << 20
	maxDims      = 4
)

// Header is the front of a file: its metadata, and the places of its tensors.
type Header struct {
	Version   uint32
	Alignment uint64
	Tensors   []TensorInfo

	values map[string]value
	places map[string]int // of Tensors, by name
}

// TensorInfo is one tensor of a file, of any type.
type TensorInfo struct {
	Name string
	Type uint32   // of ggml
	Dims []uint64 // the innermost first
	// Data is its bytes; nil if the size of the type is unknown.
	Data []byte

	at, bytes uint64 // of the data part
}

// Parse reads the front of a file. Errors are gpuerr.Invalid and name the part.
func Parse(data []byte) (*Header, error) {
	c := &cursor{data: data[:min(len(data), maxFront)]}
	h := &Header{Alignment: 32, values: map[string]value{}, places: map[string]int{}}
	if m := c.take(4, "magic"); m != nil && string(m) != magic {
		return nil, gpuerr.New(gpuerr.Invalid, "magic: %q is not %q", m, magic)
	}

	h.Version = c.u32("version")
	switch v := h.Version; {
	case c.err != nil:
		return nil, c.err
	case v == 2 || v == 3:
	case v != 0 && v&0xFFFF == 0 && bits.ReverseBytes32(v) < 100:
		return nil, gpuerr.New(gpuerr.Invalid, "version: the file is big-endian; only little-endian ones are read")
	default:
		return nil, gpuerr.New(gpuerr.Invalid, "version: %d is not supported; 2 and 3 are", v)
	}

	tensors, entries := c.u64("tensor count"), c.u64("metadata count")
	// The smallest entry has a key of 1 byte and a value of 1; the smallest tensor a name
	// of 1 and one dimension.
	if most := min(maxEntries, c.left()/14); entries > most {
		c.failf("metadata count: %d entries, and %d are the most for a file of %d bytes", entries, most, len(data))
	}
	if most := min(maxTensors, c.left()/33); tensors > most {
		c.failf("tensor count: %d tensors, and %d are the most for a file of %d bytes", tensors, most, len(data))
	}

	for i := uint64(0); i < entries && c.err == nil; i++ {
		h.entry(c, i)
	}

	if c.err != nil {
		return nil, c.err
	}
	if err := h.alignment(); err != nil {
		return nil, err
	}

	for i := uint64(0); i < tensors && c.err == nil; i++ {
		h.tensor(c, i)
	}

	if c.err != nil {
		return nil, c.err
	}

	start := (c.off + h.Alignment - 1) / h.Alignment * h.Alignment
	if start > uint64(len(data)) {
		if tensors != 0 {
			return nil, gpuerr.New(gpuerr.Invalid, "tensor data: begins at offset %d of a file of %d bytes", start, len(data))
		}
		start = uint64(len(data))
	}

	return h, h.place(data[start:])
}

// entry reads one key and skips its value.
func (h *Header) entry(c *cursor, i uint64) {
	key := c.name("a key of the metadata", maxKey)
	if c.err != nil {
		return
	}
	if key == "" {
		c.failf("metadata: the key of entry %d is empty", i)
		return
	}
	if _, ok := h.values[key]; ok {
		c.failf("%s: is there twice", key)
		return
	}

	typ := c.u32(key)
	from := c.off
	skip(c, typ, key, 0)
	if c.err == nil {
		h.values[key] = value{typ: typ, raw: c.data[from:c.off:c.off]}
	}
}

func (h *Header) alignment() error {
	n, ok, err := h.uint("general.alignment", maxAlignment)
	if err != nil || !ok {
		return err
	}
	if n < 8 || n&(n-1) != 0 {
		return gpuerr.New(gpuerr.Invalid, "general.alignment: %d is no power of two of 8 or more", n)
	}
	h.Alignment = n
	return nil
}

func (h *Header) tensor(c *cursor, i uint64) {
	t := TensorInfo{Name: c.name("a name of a tensor", maxName)}
	if c.err != nil {
		return
	}
	if t.Name == "" {
		c.failf("tensor %d: has no name", i)
		return
	}

	what := "tensor " + t.Name
	if _, ok := h.places[t.Name]; ok {
		c.failf("%s: is there twice", what)
		return
	}

	n := c.u32(what)
	if n < 1 || n > maxDims {
		c.failf("%s: %d dimensions are not within 1 to %d", what, n, maxDims)
		return
	}

	t.Dims = make([]uint64, n)
	elements := uint64(1)
	for d := range t.Dims {
		t.Dims[d] = c.u64(what)
		hi, lo := bits.Mul64(elements, t.Dims[d])
		if c.err == nil && (t.Dims[d] == 0 || hi != 0 || lo > 1<<62) {
			c.failf("%s: dimensions %d are not possible", what, t.Dims[:d+1])
		}
		elements = lo
	}

	t.Type, t.at = c.u32(what), c.u64(what)
	if c.err != nil {
		return
	}
	if t.at%h.Alignment != 0 {
		c.failf("%s: offset %d is no multiple of the alignment %d", what, t.at, h.Alignment)
		return
	}

	if typ, ok := elementOf(t.Type); ok {
		e, b := typ.Block()
		per, bytes := uint64(e), uint64(b)
		if t.Dims[0]%per != 0 {
			c.failf("%s: rows of %d elements are no whole blocks of %s, which have %d", what, t.Dims[0], typeName(t.Type), per)
			return
		}
		hi, lo := bits.Mul64(elements/per, bytes)
		if hi != 0 {
			c.failf("%s: dimensions %d are not possible", what, t.Dims)
			return
		}
		t.bytes = lo
	}

	h.places[t.Name] = len(h.Tensors)
	h.Tensors = append(h.Tensors, t)
}

// place finds each tensor's bytes in the data part. No two tensors may share any,
// so together they are never larger than the file.
func (h *Header) place(data []byte) error {
	for i := range h.Tensors {
		t := &h.Tensors[i]
		size := uint64(len(data))
		if t.at > size || t.bytes > size-t.at {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: %d bytes at offset %d of %d bytes of data", t.Name, t.bytes, t.at, size)
		}
		if t.bytes > 0 {
			t.Data = data[t.at:][:t.bytes:t.bytes]
		}
	}

	order := make([]*TensorInfo, len(h.Tensors))
	for i := range order {
		order[i] = &h.Tensors[i]
	}

	slices.SortFunc(order, func(a, b *TensorInfo) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})

	end, last := uint64(0), ""
	for _, t := range order {
		if t.bytes > 0 && t.at < end {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: lies over tensor %s", t.Name, last)
		}
		if t.bytes > 0 {
			end, last = t.at+t.bytes, t.Name
		}
	}

	return nil
}

// Tensor is a tensor by its name, nil if there is none.
func (h *Header) Tensor(name string) *TensorInfo {
	if i, ok := h.places[name]; ok {
		return &h.Tensors[i]
	}
	return nil
}
