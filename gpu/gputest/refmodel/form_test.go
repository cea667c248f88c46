package refmodel_test

import (
	"encoding/binary"
	"testing"

	"capgpu/gpu/gputest/refmodel"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// FuzzForm: of any 64 bytes the ring says what the model says, as far as it looks: at all
// but the arguments.
func FuzzForm(f *testing.F) {
	add := func(e ring.Entry) {
		var b [ring.EntryBytes]byte
		e.Encode(&b)
		f.Add(b[:])
	}
	add(ring.NopEntry(1))
	add(ring.LaunchEntry(1, 2, ring.Dim3{X: 1, Y: 2, Z: 3}, ring.Dim3{X: 4, Y: 5, Z: 6}, 7, 8))
	add(ring.LaunchEntry(1, 2, ring.Dim3{}, ring.Dim3{}, 0, 0))
	add(ring.LaunchEntry(1, 2, ring.Dim3{X: 1 << 31, Y: 1 << 31, Z: 4}, ring.Dim3{X: 1, Y: 1, Z: 1}, 0, 0))
	add(ring.CopyEntry(1, 2, 3, 4, 5, 6, 7))
	add(ring.FillEntry(1, 2, 4, 8, 5, 6))
	add(ring.SignalEntry(1, 2, 3))
	add(ring.WaitOrderEntry(1, 2, 3))
	add(ring.ReplayEntry(1, 2, 3))
	const argBytes = 4096
	// Bindings of one word each: what is in them is not looked at here.
	arena := make([]uint64, argBytes/8)
	for i := range arena {
		if i%4 != 3 {
			arena[i] = 1
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < ring.EntryBytes {
			return
		}
		var real ring.Entry
		real.Decode((*[ring.EntryBytes]byte)(b))
		if real.Op == ring.OpLaunch { // with no bindings that could be wrong
			if off, n := real.ArgRange(); real.Count > 0 && n > 0 && off%32 != 0 {
				return
			}
		}
		var model refmodel.Entry
		for i := range model {
			model[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		got, want := gpuerr.None, refmodel.Form(&model, arena)
		if err := ring.Check(&real, argBytes); err != nil {
			got = gpuerr.CodeOf(err)
		}
		if got != want {
			t.Fatalf("%x: the ring says %v, the model %v", b[:ring.EntryBytes], got, want)
		}
	})
}
