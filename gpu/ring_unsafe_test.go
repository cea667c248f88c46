package gpu

import "unsafe"

// bytes is a mapping as memory.
func (m mapping) bytes() []byte {
	from := m.from
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&from)), m.to-m.from)
}
