package gguf

import (
	"fmt"
	"math"

	"capgpu/gpuerr"
)

// A model may be in several files, NAME-00001-of-00003.gguf and so on
// (llama-gguf-split). The first has the metadata; each has split.no, from 0,
// split.count, and split.tensors.count, the number of all tensors.

// MaxSplits bounds the files of a model.
const MaxSplits = 1024

// Splits is the number of files of the model that a file belongs to, and the number
// of this file, from 0. Errors are gpuerr.Invalid and name the part.
func Splits(data []byte) (count, no int, err error) {
	h, err := Parse(data)
	if err != nil {
		return 0, 0, err
	}
	return h.splits()
}

func (h *Header) splits() (count, no int, err error) {
	n, ok, err := h.uint("split.count", math.MaxUint16)
	if err != nil || !ok || n < 2 {
		return 1, 0, err
	}
	if n > MaxSplits {
		return 0, 0, gpuerr.New(gpuerr.Invalid, "split.count: %d files are more than %d", n, MaxSplits)
	}
	i, ok, err := h.uint("split.no", math.MaxUint16)
	if err != nil {
		return 0, 0, err
	}
	if !ok || i >= n {
		return 0, 0, gpuerr.New(gpuerr.Invalid, "split.no: is missing, or not below the %d of split.count", n)
	}
	return int(n), int(i), nil
}

// join is the front of a model in several files: the first one's, with the tensors of
// all.
func join(files [][]byte) (*Header, error) {
	var all *Header
	for i, data := range files {
		h, err := Parse(data)
		if err != nil {
			return nil, inSplit(i, files, err)
		}

		count, no, err := h.splits()
		if err == nil && (count != len(files) || no != i) {
			err = gpuerr.New(gpuerr.Invalid, "split.no: is file %d of %d where file %d of %d is needed", no+1, count, i+1, len(files))
		}
		if err != nil {
			return nil, inSplit(i, files, err)
		}

		if all == nil {
			all = h
			continue
		}
		if len(all.Tensors)+len(h.Tensors) > maxTensors {
			return nil, inSplit(i, files, gpuerr.New(gpuerr.Invalid, "tensor count: more than %d tensors in all files", maxTensors))
		}
		for _, t := range h.Tensors {
			if _, twice := all.places[t.Name]; twice {
				return nil, inSplit(i, files, gpuerr.New(gpuerr.Invalid, "tensor %s: is in another file too", t.Name))
			}
			all.places[t.Name] = len(all.Tensors)
			all.Tensors = append(all.Tensors, t)
		}
	}

	if len(files) > 1 {
		n, ok, err := all.uint("split.tensors.count", maxTensors)
		if err != nil {
			return nil, err
		}
		if ok && n != uint64(len(all.Tensors)) {
			return nil, gpuerr.New(gpuerr.Invalid, "split.tensors.count: %d, and the files have %d tensors", n, len(all.Tensors))
		}
	}
	return all, nil
}

func inSplit(i int, files [][]byte, err error) error {
	if len(files) == 1 {
		return err
	}
	return fmt.Errorf("file %d of %d: %w", i+1, len(files), err)
}
