package load

import (
	"fmt"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/mapped"
)

// splits are the mapped files of a GGUF model, in order.
type splits struct{ files []*mapped.File }

// load maps the other files of the model, if the first one is of several, and loads
// it. Whichever of them was named, all are opened.
func (s *splits) load(path string) (*model.File, error) {
	count, no, err := gguf.Splits(s.files[0].Bytes())
	if err != nil {
		return nil, err
	}

	if count > 1 {
		prefix, named := strings.CutSuffix(path, splitName(no, count))
		if !named {
			return nil, gpuerr.New(gpuerr.Invalid, "split.count: is file %d of %d, and its name does not end in %s", no+1, count, splitName(no, count))
		}
		given := s.files[0]
		for i := range count {
			if i == no {
				continue
			}
			m, err := mapped.Open(prefix + splitName(i, count))
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, m)
		}
		copy(s.files, s.files[1:no+1])
		s.files[no] = given
	}

	data := make([][]byte, len(s.files))
	for i, m := range s.files {
		data[i] = m.Bytes()
	}
	return gguf.Load(data...)
}

// splitName is the end of the name of file no, from 0 (llama-gguf-split).
func splitName(no, count int) string { return fmt.Sprintf("-%05d-of-%05d.gguf", no+1, count) }

func (s *splits) close() error {
	var first error
	for _, m := range s.files {
		if err := m.Close(); first == nil {
			first = err
		}
	}
	return first
}
