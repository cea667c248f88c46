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
	if x.kept != kept || x.Program != l.Program || x.Grid != l.Grid || x.Block != l.Block ||
		x.SharedBytes != l.SharedBytes || x.Deadline != l.Deadline || len(x.Bindings) != len(l.Bindings) {
		return false
	}
	for i := range l.Bindings {
		if b, have := &l.Bindings[i], &x.Bindings[i]; b.Buffer != have.Buffer || b.Off != have.Off || b.Len != have.Len {
			return false
		}
	}
	return bytes.Equal(x.Inline, l.Inline)
}

// note makes x what was pushed.
func (x *launched) note(kept ring.Kept, l *Launch) {
	bindings, inline := append(x.Bindings[:0], l.Bindings...), append(x.Inline[:0], l.Inline...)
	x.kept, x.Launch = kept, *l
	x.Bindings, x.Inline = bindings, inline
}
