package ring

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

var update = flag.Bool("update", false, "write testdata/ring.golden anew")

var goldenEntries = []struct {
	name string
	e    Entry
}{
	{"nop", NopEntry(1)},
	{"launch", LaunchEntry(0x0102030405060708, 0x0000000200000001, Dim3{0x11, 0x22, 0x33}, Dim3{0x44, 0x55, 0x66}, 0x77, 0x88)},
	{"copy", CopyEntry(2, 3, 4, 5, 6, 7, 8)},
	{"fill", FillEntry(2, 3, 4, 8, 0xdeadbeef, 9)},
	{"signal", SignalEntry(2, 3, 4)},
	{"wait", WaitEntry(2, 3, 4)},
	{"replay", ReplayEntry(2, 3, 4)},
	{"every field", Entry{Op: OpReplay, Flags: 0xf1, Count: 0xc0c1, DeadlineMicros: 0xd0d1d2d3, UserData: 1, Object: 2, A: 3, B: 4, C: 5, D: 6, Zero: 7}},
}

var trapped = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{
	Kind: outcome.OutOfBounds, Binding: 0x0203, Workgroup: 0x04050607, Lane: 0x0809, Offset: 0x1122334455667788}}

var goldenCompletions = []struct {
	name string
	c    Completion
}{
	{"ok", Completion{UserData: 0x0102030405060708, Outcome: outcome.Success, DeviceNanos: 0x1112131415161718}},
	{"trap", Completion{UserData: 1, Outcome: trapped}},
	{"quota", Completion{UserData: 1, Outcome: outcome.Outcome{Kind: outcome.Failed}, Code: gpuerr.Quota, Available: 0x1000}},
	{"refused", Completion{UserData: 1, Outcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}, Code: gpuerr.LaunchLimit}},
	{"cancelled", Completion{UserData: 1, Outcome: outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Dependency}}},
}

// TestGolden pins every byte of entries, completions, header and arguments, as
// they lie in the shared memory.
func TestGolden(t *testing.T) {
	var lines []string
	add := func(name string, b []byte) {
		lines = append(lines, fmt.Sprintf("%-22s %s", name, hex.EncodeToString(b)))
	}
	s, c := pair(t, 8, 512)
	for i, g := range goldenEntries {
		var b [EntryBytes]byte
		g.e.Encode(&b)
		add("entry "+g.name, b[:])
		var back Entry
		if back.Decode(&b); back != g.e {
			t.Errorf("%s decodes to %+v", g.name, back)
		}
		if g.e.Op == OpLaunch {
			continue // Push sets fields of it; see below
		}
		push(t, c, g.e, nil, nil)
		off := s.sq + uint32(i)*EntryBytes
		if i > 1 {
			off -= EntryBytes
		}
		if !bytes.Equal(s.mapping[off:off+EntryBytes], b[:]) {
			t.Errorf("%s lies in memory as %x", g.name, s.mapping[off:off+EntryBytes])
		}
	}
	var order [EntryBytes]byte
	orderOnly := WaitOrderEntry(2, 3, 4)
	orderOnly.Encode(&order)
	add("entry wait, order only", order[:])
	push(t, c, goldenEntries[1].e, []Binding{{Buffer: 0x0a, Off: 0x0b, Len: 0x0c}, {Buffer: 0x0d}}, []byte("inline"))
	last := s.sq + uint32(len(goldenEntries)-1)*EntryBytes
	add("entry launch pushed", s.mapping[last:last+EntryBytes])
	add("arguments", s.mapping[s.arena:s.arena+2*BindingBytes+8])
	flush(t, c)
	for range goldenCompletions {
		take(t, s)
	}
	s.Consumed()
	for i, g := range goldenCompletions {
		s.Complete(&g.c)
		word := s.mapping[s.cq+uint32(i)*CompletionBytes+8:][:8]
		if there := !bytes.Equal(word, make([]byte, 8)); there != (i > 0) {
			t.Errorf("word 1 of %s before it is published: %x", g.name, word) // that of the first comes last
		}
	}
	s.Flush()
	for i, g := range goldenCompletions {
		off := s.cq + uint32(i)*CompletionBytes
		add("completion "+g.name, s.mapping[off:off+CompletionBytes])
	}
	out := make([]Completion, len(goldenCompletions))
	if n, err := c.Poll(out); n != len(out) || err != nil {
		t.Fatalf("Poll() = %d, %v", n, err)
	}
	for i, g := range goldenCompletions {
		if out[i] != g.c {
			t.Errorf("%s comes as %+v", g.name, out[i])
		}
	}
	s.view.sqWait.Store(waitCompletions)
	s.view.cqWait.Store(waitEntries)
	s.view.state.Store(uint32(gpuerr.Revoked))
	for off := 0; off < headerBytes; off += 32 {
		add(fmt.Sprintf("header %#03x", off), s.mapping[off:off+32])
	}
	text := strings.Join(lines, "\n") + "\n"
	const path = "testdata/ring.golden"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs; the wire changed: amend docs/wire.md, then run with -update.\nhave:\n%s\nwant:\n%s", path, text, want)
	}
}

func TestAccessors(t *testing.T) {
	e := LaunchEntry(1, 2, Dim3{3, 4, 5}, Dim3{6, 7, 65535}, 9, 10)
	if e.Grid() != (Dim3{3, 4, 5}) || e.Block() != (Dim3{6, 7, 65535}) || e.SharedBytes() != 9 || e.DeadlineMicros != 10 || e.Object != 2 {
		t.Errorf("launch: %+v %v %v", e, e.Grid(), e.Block())
	}
	if err := Check(&e, 64); err != nil {
		t.Error(err)
	}
	for _, block := range []Dim3{{65536, 0, 0}, {0, 65536, 0}, {1, 1, 65537}} {
		if e = LaunchEntry(1, 2, Dim3{}, block, 0, 0); Check(&e, 64) == nil {
			t.Errorf("a block of %v is lost on the wire and not refused", block)
		}
	}
	if e = CopyEntry(1, 2, 3, 4, 5, 6, 7); e.Object != 2 {
		t.Errorf("copy: %+v", e)
	}
	if dstOff, src, srcOff, n := e.CopyRange(); dstOff != 3 || src != 4 || srcOff != 5 || n != 6 {
		t.Errorf("copy: %+v", e)
	}
	e = FillEntry(1, 2, 3, 4, 5, 6)
	if off, n, pattern := e.FillRange(); off != 3 || n != 4 || pattern != 5 {
		t.Errorf("fill: %+v", e)
	}
	if e = WaitEntry(1, 2, 3); e.Op != OpWait || e.FenceValue() != 3 {
		t.Errorf("wait: %+v", e)
	}
}

// FuzzCompletion: a completion that is read is written as the same words.
func FuzzCompletion(f *testing.F) {
	for _, g := range goldenCompletions {
		w := g.c.words(1)
		f.Add(w[0], w[1], w[2], w[3])
	}
	f.Fuzz(func(t *testing.T, a, b, c, d uint64) {
		w := [completionWords]uint64{a, b, c, d}
		var done Completion
		if done.setWords(&w) != nil {
			return
		}
		if again := done.words(lapIn(b)); again != w {
			t.Fatalf("%x is read as %+v, which is written as %x", w, done, again)
		}
	})
}
