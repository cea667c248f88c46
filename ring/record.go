package ring

import "encoding/binary"

// A list is recorded from entries that are laid out as in a ring, and an area that their
// arguments lie in. There a client writes it by itself.

// SetArgs says where the arguments of a launch lie, and how many there are.
func (e *Entry) SetArgs(off uint32, bindings, inlineBytes int) {
	e.Count = uint16(bindings)
	e.C = e.C&^(0xffff<<16) | uint64(uint16(inlineBytes))<<16
	e.D = uint64(off) | uint64(uint32(bindings*BindingBytes+inlineBytes))<<32
}

// AppendArgs appends the arguments of a launch as they lie in an arena.
func AppendArgs(b []byte, bindings []Binding, inline []byte) []byte {
	for _, x := range bindings {
		for _, w := range [...]uint64{x.Buffer, x.Off, x.Len, 0} {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return append(b, inline...)
}
