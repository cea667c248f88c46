package ring

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"capgpu/gpuerr"
)

func TestPatchRoundTrip(t *testing.T) {
	for _, p := range []Patch{
		InlinePatch(3, 8, []byte{1, 2, 3, 4}),
		InlinePatch(0xffff, 0xffffffff, bytes.Repeat([]byte{0xab}, MaxPatchInline)),
		BindingPatch(7, 2, 4096, 0),
		BindingPatch(0, 0, 1<<63, 1<<62),
	} {
		w := p.Words()
		var back Patch
		if err := back.SetWords(w[:]); err != nil || !reflect.DeepEqual(back, p) {
			t.Errorf("%+v comes back as %+v, %v", p, back, err)
		}
	}
	p := InlinePatch(0, 4, []byte{9, 8, 7})
	if b := p.Inline(); !bytes.Equal(b[:p.Bytes], []byte{9, 8, 7}) {
		t.Errorf("inline bytes are %v", b)
	}
}

func TestPatchRefuses(t *testing.T) {
	for name, p := range map[string]Patch{
		"kind":          {Kind: numPatchKinds},
		"no bytes":      InlinePatch(0, 0, nil),
		"many bytes":    InlinePatch(0, 0, make([]byte, MaxPatchInline+1)),
		"binding bytes": {Kind: PatchBinding, Bytes: 1},
		"overflow":      BindingPatch(0, 0, 1<<63, 1<<63),
	} {
		w := p.Words()
		if err := p.SetWords(w[:]); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := BindingPatch(0, 0, 1, 1)
	w := p.Words()
	w[3] = 1
	if err := p.SetWords(w[:]); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("zero: %v", err)
	}
}

// Whatever four words come: what is accepted is bounded, and is the same words again
// but for what is ignored.
func FuzzPatch(f *testing.F) {
	for _, p := range []Patch{InlinePatch(3, 8, []byte{1, 2, 3, 4}), BindingPatch(7, 2, 4096, 64)} {
		w := p.Words()
		f.Add(w[0], w[1], w[2], w[3])
	}
	f.Fuzz(func(t *testing.T, a, b, c, d uint64) {
		words := [...]uint64{a, b, c, d}
		var p Patch
		if err := p.SetWords(words[:]); err != nil {
			if gpuerr.CodeOf(err) != gpuerr.Invalid {
				t.Fatalf("%v, want E_INVALID", err)
			}
			return
		}
		switch p.Kind {
		case PatchInline:
			if p.Bytes == 0 || p.Bytes > MaxPatchInline {
				t.Fatalf("%+v", p)
			}
		case PatchBinding:
			if p.A+p.B < p.A {
				t.Fatalf("%+v", p)
			}
		default:
			t.Fatalf("%+v", p)
		}
		if p.Words() != words {
			t.Fatalf("%v comes back as %v", words, p.Words())
		}
	})
}

// Arguments that are laid out by hand are those that Push writes.
func TestArgsByHand(t *testing.T) {
	s, c := pair(t, 4, 256)
	bindings := []Binding{{Buffer: 1, Off: 2, Len: 3}, {Buffer: 4, Off: 5}}
	e := LaunchEntry(7, 9, Dim3{1, 2, 3}, Dim3{4, 5, 6}, 16, 0)
	push(t, c, e, bindings, []byte("inline"))
	var pushed, byHand [EntryBytes]byte
	copy(pushed[:], s.mapping[s.sq:])
	e.SetArgs(0, len(bindings), 6)
	if e.Encode(&byHand); byHand != pushed {
		t.Errorf("by hand %x, pushed %x", byHand, pushed)
	}
	args := AppendArgs(nil, bindings, []byte("inline"))
	if said := s.mapping[s.arena:]; !bytes.Equal(args, said[:len(args)]) || len(args) != 2*BindingBytes+6 {
		t.Errorf("by hand %x, pushed %x", args, said[:len(args)])
	}
}
