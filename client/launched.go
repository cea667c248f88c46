package client

import (
	"bytes"

	"capgpu/ring"
)

// launched is a launch that was found in order and pushed, as its caller gave it. One that
// says the same is in order as well: programs and buffers do not change while they are open,
// and whether they are is for the driver to say.
type launched struct {
	kept ring.Kept // where the ring has it
	Launch
}

// is reports whether l says the same as what the ring has there.
func (x *launched) is(kept ring.Kept, l *Launch) bool {
	if x.kept != kept || x.Program != l.Program || len(x.Bindings) != len(l.Bindings) || len(x.Inline) != len(l.Inline) {
		return false
	}
	// One branch is cheaper than one for each.
	differ := uint64((x.Grid.X^l.Grid.X)|(x.Grid.Y^l.Grid.Y)|(x.Grid.Z^l.Grid.Z)|
		(x.Block.X^l.Block.X)|(x.Block.Y^l.Block.Y)|(x.Block.Z^l.Block.Z)|(x.SharedBytes^l.SharedBytes)) |
		uint64(x.Deadline^l.Deadline)
	have := x.Bindings
	for i := range l.Bindings {
		if i >= len(have) { // never; so nothing else looks at it
			return false
		}
		b, h := &l.Bindings[i], &have[i]
		if b.Buffer != h.Buffer {
			return false
		}
		differ |= (b.Off ^ h.Off) | (b.Len ^ h.Len)
	}
	if differ != 0 {
		return false
	}
	return len(l.Inline) == 0 || bytes.Equal(x.Inline, l.Inline)
}

// note makes x what was pushed.
func (x *launched) note(kept ring.Kept, l *Launch) {
	bindings, inline := append(x.Bindings[:0], l.Bindings...), append(x.Inline[:0], l.Inline...)
	x.kept, x.Launch = kept, *l
	x.Bindings, x.Inline = bindings, inline
}
