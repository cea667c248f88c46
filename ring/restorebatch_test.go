package ring

import (
	"testing"

	"capgpu/gpuerr"
)

// An entry that was taken and not begun is restored with the arguments that it names, no more and
// no fewer.
func TestRestoreBatch(t *testing.T) {
	launch := LaunchEntry(1, 2, Dim3{X: 1, Y: 1, Z: 1}, Dim3{}, 0, 0)
	launch.SetArgs(0, 1, 8)
	large := launch
	large.SetArgs(0, 1, BatchArgBytes)
	replay := ReplayEntry(1, 2, 0)
	replay.SetArgs(0, 1, 0)
	replay.Count, replay.D = 1, PatchBytes<<32
	nop := NopEntry(1)
	of := func(e *Entry, args int) (t Taken) {
		t.Entry = *e
		t.Args = make([]uint64, args)
		return t
	}
	refused := of(&nop, 0)
	refused.Op = 0xff // no operation, which it was refused for
	refused.Code = gpuerr.Invalid
	for _, test := range []struct {
		name  string
		entry Taken
		most  uint32
		good  bool
	}{
		{"a launch", of(&launch, 5), 64, true},
		{"a launch of as much as there may be", of(&large, 4+BatchArgBytes/8), 32 + BatchArgBytes, true},
		{"a launch of too much", of(&large, 4+BatchArgBytes/8), 24 + BatchArgBytes, false},
		{"a launch without its arguments", of(&launch, 4), 64, false},
		{"a launch with more", of(&launch, 6), 64, false},
		{"a replay", of(&replay, PatchBytes/8), 64, true},
		{"a replay without its patch", of(&replay, 0), 64, false},
		{"nothing to do", of(&nop, 0), 64, true},
		{"nothing to do, with arguments", of(&nop, 1), 64, false},
		{"what Check refuses", func() Taken { r := refused; r.Code = gpuerr.None; return r }(), 64, false},
		{"what was refused", refused, 64, true},
	} {
		b, err := RestoreBatch(test.most, []Taken{test.entry})
		switch {
		case !test.good:
			if gpuerr.CodeOf(err) != gpuerr.Protocol && gpuerr.CodeOf(err) != gpuerr.Invalid {
				t.Errorf("%s: %v", test.name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case len(b.Entries) != 1 || b.Entries[0].Code != test.entry.Code || len(b.Entries[0].Args) != len(test.entry.Args):
			t.Errorf("%s: %+v", test.name, b.Entries)
		}
	}
	many := make([]Taken, BatchEntries+1)
	for i := range many {
		many[i] = of(&nop, 0)
	}
	if _, err := RestoreBatch(64, many[1:]); err != nil {
		t.Error(err)
	}
	if _, err := RestoreBatch(64, many); gpuerr.CodeOf(err) != gpuerr.Protocol {
		t.Errorf("more than a batch has: %v", err)
	}
}

// 65535 bytes are said in an entry, and no more.
func TestMostInline(t *testing.T) {
	_, c := pair(t, 4, 1<<18)
	e := LaunchEntry(1, 2, Dim3{X: 1, Y: 1, Z: 1}, Dim3{}, 0, 0)
	if err := c.Push(&e, nil, make([]byte, 65535)); err != nil {
		t.Error(err)
	}
	if err := c.Push(&e, nil, make([]byte, 65536)); gpuerr.CodeOf(err) != gpuerr.Invalid {
		t.Errorf("65536 bytes: %v", err)
	}
}
