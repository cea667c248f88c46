package llama2c

import (
	"math"
	"math/bits"

	"capgpu/gpuerr"
	"capgpu/model"
)

// Is reports whether a file begins as versions 1 and 2 do. Version 0 has no mark.
func Is(data []byte) bool { return len(data) >= 4 && le.Uint32(data) == magic }

// Plausible reports whether the front of a file describes a possible shape. Besides
// the length, nothing else tells version 0 from another format.
func Plausible(data []byte) bool {
	h, err := parse(data)
	if err == nil {
		_, err = shapeOf(h)
	}
	return err == nil
}

// Load is the model of a checkpoint, without a tokenizer and a name. All tensors
// stay in data. Errors are gpuerr.Invalid and name the part.
func Load(data []byte) (*model.File, error) {
	h, err := parse(data)
	if err != nil {
		return nil, err
	}

	f := &model.File{Format: "llama2c"}
	if f.Config, err = shapeOf(h); err != nil {
		return nil, err
	}
	if err := checkGroup(&f.Config, h); err != nil {
		return nil, err
	}

	// At least the norms of every layer must be there, so the layers are allocated
	// in proportion to the file.
	if c := &f.Config; c.Layers > len(data)/(8*c.Dim) {
		return nil, gpuerr.New(gpuerr.Invalid, "n_layers: %d layers of dim %d in a file of %d bytes", c.Layers, c.Dim, len(data))
	}

	f.Weights.Layers = make([]model.Layer, f.Config.Layers)
	all := parts(f, h)
	if err := whole(all, h, len(data)); err != nil {
		return nil, err
	}

	off := h.bytes
	for i := range all {
		p := &all[i]
		n, s := p.sizes(h.group)
		if p.to != nil {
			*p.to = model.Tensor{Rows: p.rows, Cols: p.cols, Data: data[off:][:n:n]}
			if p.quantised {
				p.to.Type, p.to.Group = model.I8, h.group
				p.to.Scales = data[off+n:][:s:s]
			}
		}
		off += n + s
	}

	if h.tied {
		f.Weights.Output = f.Weights.Embed
	}

	return f, nil
}

// whole checks that the parts have exactly the file's size. No part is beyond 2^42
// bytes, because the shape is within its bounds, and no sum of them beyond 2^62.
func whole(all []part, h *header, size int) error {
	sum := uint64(h.bytes)
	for i := range all {
		n, s := all[i].sizes(h.group)
		var carry uint64
		if sum, carry = bits.Add64(sum, uint64(n)+uint64(s), 0); carry != 0 || sum > math.MaxInt64 {
			return gpuerr.New(gpuerr.Invalid, "%s: is beyond any file", all[i].name)
		}
		if sum > uint64(size) {
			return gpuerr.New(gpuerr.Invalid, "%s: ends at byte %d of a file of %d", all[i].name, sum, size)
		}
	}
	if sum != uint64(size) {
		return gpuerr.New(gpuerr.Invalid, "file: has %d bytes, and its shape makes it %d", size, sum)
	}
	return nil
}

// parse reads the front of a file.
func parse(data []byte) (*header, error) {
	h := &header{bytes: shapeBytes}
	shape := data
	if Is(data) {
		if len(data) < headerBytes {
			return nil, gpuerr.New(gpuerr.Invalid, "header: %d bytes, and not %d", len(data), headerBytes)
		}

		version := le.Uint32(data[4:])
		if version != 1 && version != 2 {
			return nil, gpuerr.New(gpuerr.Invalid, "version: %d is not supported; 0, 1 and 2 are", version)
		}

		h.version, h.bytes = int(version), headerBytes
		shape = data[8:]
		tied := data[8+shapeBytes]
		if tied > 1 {
			return nil, gpuerr.New(gpuerr.Invalid, "shared_classifier: %d is not 0 or 1", tied)
		}

		h.tied = tied == 1
		if version == 2 {
			h.group = int(int32(le.Uint32(data[8+shapeBytes+1:])))
		}
	}

	if len(shape) < shapeBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "header: %d bytes, and not %d", len(shape), shapeBytes)
	}

	for i := range h.shape {
		h.shape[i] = int32(le.Uint32(shape[4*i:]))
	}

	if h.version == 0 {
		vocab := &h.shape[5]
		h.tied = *vocab > 0
		if *vocab < 0 && *vocab != math.MinInt32 {
			*vocab = -*vocab
		}
	}

	return h, nil
}

// checkGroup checks that the rows of all matrices are whole groups.
func checkGroup(c *model.Config, h *header) error {
	if h.version != 2 {
		return nil
	}
	if h.group < 1 || c.Dim%h.group != 0 || c.Hidden%h.group != 0 {
		return gpuerr.New(gpuerr.Invalid, "group_size: %d does not divide dim %d and hidden_dim %d", h.group, c.Dim, c.Hidden)
	}
	return nil
}
