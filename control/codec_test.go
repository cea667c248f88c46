package control

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

func (s *sample) name() string {
	if s.reply {
		return s.typ.String() + " reply"
	}
	return s.typ.String()
}

func TestGolden(t *testing.T) {
	var lines []string
	seen := map[string]bool{}
	for i := range samples {
		s := &samples[i]
		seen[s.name()] = true
		m := &Message{Type: s.typ, Reply: s.reply, Seq: 0x0102030405060708, Body: s.body.AppendTo(nil)}
		lines = append(lines, goldenLine(s.name(), encode(t, m)))
	}

	fail := ErrorReply(&Message{Type: TypeCreateBuffer, Seq: 2}, anError)
	lines = append(lines, goldenLine("error reply", encode(t, fail)))
	json := &Message{Type: TypeStatus, Reply: true, Seq: 3, Body: []byte(`{"a":1}`)}
	lines = append(lines, goldenLine("Status reply", encode(t, json)))
	fds := &Message{Type: TypeCreateQueue, Reply: true, Seq: 3, FDs: []int{4, 5, 6}}
	lines = append(lines, goldenLine("three descriptors", encode(t, fds)))
	golden(t, "messages.golden", lines)

	for typ := range layouts {
		for _, name := range []string{typ.String(), typ.String() + " reply"} {
			if !seen[name] && !((typ == TypeStatus || typ == TypeDriverStatus || typ == TypePlan) && strings.HasSuffix(name, "reply")) {
				t.Errorf("%s has no sample", name)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for i := range samples {
		s := &samples[i]
		t.Run(s.name(), func(t *testing.T) {
			b := s.body.AppendTo(nil)
			got, err := s.parse(b)
			if err != nil || !reflect.DeepEqual(got, s.body) {
				t.Fatalf("parse = %+v, %v; want %+v", got, err, s.body)
			}
			if err := CheckBody(s.typ, s.reply, b); err != nil {
				t.Errorf("CheckBody: %v", err)
			}

			for n := range b { // every truncation
				if _, err := s.parse(b[:n]); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("%d of %d bytes parse: %v", n, len(b), err)
				}
			}

			if _, err := s.parse(append(b, 0)); !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("one byte too many parses: %v", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxStringBytes+1)
	huge := appendU32(nil, math.MaxUint32)
	fence := FenceState{Outcome: aTrap}.AppendTo(nil)
	poke := func(b []byte, off int, v byte) []byte {
		b = bytes.Clone(b)
		b[off] = v
		return b
	}

	device := func(change func(*DeviceInfo)) []byte {
		d := aDevice
		change(&d)
		return ListDevicesReply{Devices: []DeviceInfo{d}}.AppendTo(nil)
	}

	for _, c := range []struct {
		name  string
		typ   MsgType
		reply bool
		body  []byte
		word  string // of the message
	}{
		{"zero handle", TypeCloseQueue, false, HandleBody{}.AppendTo(nil), "handle"},
		{"zero handle in reply", TypeCreateFence, true, HandleBody{}.AppendTo(nil), "handle"},
		{"long name", TypeOpenProgram, false, OpenProgramRequest{Name: long}.AppendTo(nil), "name"},
		{"name of 64 KiB and more", TypeOpenProgram, false, OpenProgramRequest{Name: strings.Repeat("x", 1<<16+3)}.AppendTo(nil), "longer"},
		{"name not UTF-8", TypeOpenProgram, false, OpenProgramRequest{Name: "\xff"}.AppendTo(nil), "UTF-8"},
		{"usage bit 4", TypeCreateBuffer, false, CreateBufferRequest{Bytes: 1, Usage: 16}.AppendTo(nil), "usage"},
		{"facet", TypeRestrict, false, RestrictRequest{Facet: 3}.AppendTo(nil), "facet"},
		{"class", TypeRestrict, false, RestrictRequest{Limits: []Limit{{Class: NumClasses}}}.AppendTo(nil), "class"},
		{"all and some", TypeEndSessions, false, EndSessionsRequest{Tenant: "a", All: true, Sessions: []uint64{1}}.AppendTo(nil), "1 are named besides all"},
		{"class twice", TypeSetTenant, false, SetTenantRequest{Limits: []Limit{{Class: 2}, {Class: 2}}}.AppendTo(nil), "twice"},
		{"budget class", TypeBudget, true, BudgetReply{Entries: []BudgetEntry{{Class: 99}}}.AppendTo(nil), "class"},
		{"huge list of devices", TypeListDevices, true, huge, "fit"},
		{"huge list of entries", TypeBudget, true, huge, "fit"},
		{"huge list of names", TypeRestrict, false, append(make([]byte, 4+8+4+4), huge...), "fit"},
		{"device state", TypeListDevices, true, device(func(d *DeviceInfo) { d.State = 4 }), "state"},
		{"device facet", TypeListDevices, true, device(func(d *DeviceInfo) { d.Facet = 3 }), "facet"},
		{"changed", TypeNextState, true, appendStr(appendU32(appendU32(appendU64(nil, 1), 1), 2), ""), "changed"},
		{"access 0", TypeOpenProgram, true, ProgramReply{Handle: 1, Info: ProgramInfo{Bindings: []BindingInfo{{}}}}.AppendTo(nil), "access"},
		{"access 4", TypeOpenProgram, true, ProgramReply{Handle: 1, Info: ProgramInfo{Bindings: []BindingInfo{{Access: 4}}}}.AppendTo(nil), "access"},
		{"outcome kind", TypeFenceWait, true, poke(fence, 16, 8), "outcome"},
		{"outcome cause", TypeFenceWait, true, poke(fence, 17, byte(outcome.IOMMUFault)+1), "outcome"},
		{"outcome trap", TypeFenceWait, true, poke(fence, 18, 9), "outcome"},
		{"outcome zero byte", TypeFenceWait, true, poke(fence, 19, 1), "zero"},
		{"outcome zero word", TypeFenceWait, true, poke(fence, 22, 1), "zero"},
		{"body where none belongs", TypePing, false, []byte{0}, "left"},
		{"long status request", TypeDriverStatus, false, make([]byte, MaxMessageBytes), "longer"},
		{"long status reply", TypeStatus, true, make([]byte, MaxLongBytes-HeaderBytes+1), "longer"},
		{"fault access 0", TypeDeviceFault, false, DeviceFaultRequest{Count: 1}.AppendTo(nil), "access"},
		{"fault access 3", TypeDeviceFault, false, DeviceFaultRequest{Access: 3, Count: 1}.AppendTo(nil), "access"},
		{"no fault", TypeDeviceFault, false, DeviceFaultRequest{Access: FaultRead}.AppendTo(nil), "count"},
		{"unknown type", 999, false, nil, "no such message"},
	} {
		err := CheckBody(c.typ, c.reply, c.body)
		if !errors.Is(err, gpuerr.Protocol) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want E_PROTOCOL with %q", c.name, err, c.word)
		}
	}

	if err := CheckBody(TypeStatus, true, make([]byte, MaxLongBytes-HeaderBytes)); err != nil {
		t.Errorf("the longest status reply: %v", err)
	}
}

// The bytes bound the allocation, not the count.
func TestParseBoundsAllocation(t *testing.T) {
	b := appendU32(nil, math.MaxUint32)
	if n := testing.AllocsPerRun(10, func() { ParseBudgetReply(b) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// The classes of the wire are those of the ledger.
func TestClasses(t *testing.T) {
	if NumClasses != int(ledger.NumClasses) {
		t.Errorf("NumClasses = %d, the ledger has %d", NumClasses, ledger.NumClasses)
	}
	for c := range ledger.NumClasses {
		if len(c.String()) > ResourceBytes {
			t.Errorf("%v does not fit the resource of an error reply", c)
		}
	}
}

func TestErrorBody(t *testing.T) {
	for _, e := range []*gpuerr.Error{
		anError,
		{Code: gpuerr.Stale},
		{Code: gpuerr.Invalid, Msg: strings.Repeat("é", 300), Resource: strings.Repeat("r", 40)},
		{Code: gpuerr.Invalid, Msg: "a\xffb\x00", Resource: "r\x00é\xfe"},
	} {
		m := ErrorReply(&Message{Type: TypePing, Seq: 1}, fmt.Errorf("wrapped: %w", e))
		if err := checkReply(m); err != nil {
			t.Errorf("%v: %v", e, err)
			continue
		}
		got := gpuerr.From(m.Err())
		if got.Code != e.Code || got.Asked != e.Asked || got.Available != e.Available || len(got.Msg) > MaxErrorBytes {
			t.Errorf("%v came back as %v", e, got)
		}
	}

	if m := ErrorReply(&Message{Type: TypePing, Seq: 1}, anError); !reflect.DeepEqual(m.Err(), error(anError)) {
		t.Errorf("%v came back as %v", anError, m.Err())
	}

	for name, err := range map[string]error{"nil": nil, "no code": errors.New("x"), "code 0": gpuerr.None, "unknown code": gpuerr.Code(999)} {
		if m := ErrorReply(&Message{Type: TypePing, Seq: 1}, err); m.Code != gpuerr.Internal || checkReply(m) != nil {
			t.Errorf("%s: %v, %v", name, m.Code, checkReply(m))
		}
	}

	body := AppendErrorBody(nil, anError)
	body[16] = 0 // a hole in the resource
	if _, err := ParseErrorBody(body); !errors.Is(err, gpuerr.Protocol) {
		t.Errorf("a resource with a hole parses: %v", err)
	}
}

func TestHeaderRefuses(t *testing.T) {
	good := encode(t, &Message{Type: TypePing, Seq: 5})
	for _, c := range []struct {
		name    string
		change  func(b []byte) []byte
		answers bool // the peer is answered
	}{
		{"short", func(b []byte) []byte { return b[:HeaderBytes-1] }, false},
		{"magic", func(b []byte) []byte { b[0] ^= 1; return b }, false},
		{"length", func(b []byte) []byte { b[4]++; return b }, true},
		{"seq 0", func(b []byte) []byte { b[8] = 0; return b }, false},
		{"type 0", func(b []byte) []byte { b[2] = 0; return b }, false},
		{"code in a request", func(b []byte) []byte { b[16] = 1; return b }, true},
		{"unknown code in a reply", func(b []byte) []byte { b[3], b[16] = 0x80, 200; return b }, false},
		{"five descriptors", func(b []byte) []byte { b[20] = 5; return b }, true},
		{"zero field", func(b []byte) []byte { b[22] = 1; return b }, true},
		{"too long", func(b []byte) []byte {
			b = append(b, make([]byte, MaxMessageBytes)...)
			b[4], b[5] = byte(len(b)), byte(len(b)>>8)
			return b
		}, true},
	} {
		_, _, err := parseMessage(c.change(bytes.Clone(good)))
		if !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := answer(err); (got != nil) != c.answers {
			t.Errorf("%s: answer %v", c.name, got)
		} else if got != nil && (got.Seq != 5 || got.Type != TypePing || got.Code != gpuerr.Protocol) {
			t.Errorf("%s: answer %+v", c.name, got)
		}
	}
}

// FuzzBodies: a body that parses encodes to the same bytes.
func FuzzBodies(f *testing.F) {
	for i := range samples {
		f.Add(uint8(i), samples[i].body.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		s := &samples[int(which)%len(samples)]
		v, err := s.parse(b)
		if (err == nil) != (CheckBody(s.typ, s.reply, b) == nil) && len(b) <= MaxMessageBytes-HeaderBytes {
			t.Fatalf("%s: parse and CheckBody differ: %v", s.name(), err)
		}
		if err != nil {
			if !errors.Is(err, gpuerr.Protocol) {
				t.Fatalf("%s: %v is no E_PROTOCOL", s.name(), err)
			}
			return
		}
		if again := v.(interface{ AppendTo([]byte) []byte }).AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%s: %x parses to %+v, which encodes to %x", s.name(), b, v, again)
		}
	})
}

// FuzzMessage: a datagram that parses encodes to the same bytes.
func FuzzMessage(f *testing.F) {
	for i := range samples {
		f.Add(encode(f, &Message{Type: samples[i].typ, Reply: samples[i].reply, Seq: uint64(i + 1), Body: samples[i].body.AppendTo(nil)}))
	}

	f.Add(encode(f, ErrorReply(&Message{Type: TypePing, Seq: 1}, anError)))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, fds, err := parseMessage(b)
		if err != nil {
			answer(err)
			return
		}

		m.FDs = make([]int, fds)
		again, err := appendMessage(nil, &m)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x parses to %+v, which encodes to %x, %v", b, m, again, err)
		}

		if m.Reply {
			checkReply(&m)
			m.Err()
		} else {
			CheckBody(m.Type, false, m.Body)
		}
	})
}
