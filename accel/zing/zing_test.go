package zing_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/outcome"
)

func TestListAndDescribe(t *testing.T) {
	g := newGuest(t, nil)
	r := g.ctl(1, 0, nil)
	require.True(t, r.ok)
	require.Equal(t, payload(2, "accel", "default", 13, "", "accel.ext", "default", 13, ""), r.bytes)

	r = g.ctl(2, 0, payload("accel", "default"))
	require.True(t, r.ok)
	require.Equal(t, uint32(13), binary.LittleEndian.Uint32(r.bytes))
	text := r.bytes[8:]
	var schema map[string]any
	require.NoError(t, json.Unmarshal(text, &schema))
	require.Equal(t, "cap.accel.v1", schema["id"])
	require.Equal(t, []any{"spirv"}, schema["backends"], "cuda is for devices that run CUDA")
	require.Equal(t, true, schema["deterministic"])
	require.Equal(t, []any{"preload", "extension"}, schema["module_registry"])
	canonical, err := json.Marshal(schema)
	require.NoError(t, err)
	require.Equal(t, string(canonical), string(text), "keys sorted, no spaces")
	require.Len(t, schema, 11)

	alone := newGuest(t, func(c *zing.Config) { c.Ext = false })
	require.Equal(t, payload(1, "accel", "default", 13, ""), alone.ctl(1, 0, nil).bytes)
	require.Equal(t, "t_cap_missing", alone.ctl(2, 0, payload("accel.ext", "default")).trace)
}

func TestQuery(t *testing.T) {
	g := newGuest(t, nil)
	q := g.must("accel", 1, 0, payload("spirv"))
	b := g.all(q)
	require.Equal(t, payload(1, "0", "mock0", uint64(1<<30)), b[:len(b)-8])
	require.Positive(t, binary.LittleEndian.Uint32(b[len(b)-8:]), "compute units")
	require.Equal(t, uint32(4), binary.LittleEndian.Uint32(b[len(b)-4:]), "unified memory")
	require.Zero(t, g.h.Read(q, make([]byte, 8)), "at its end for ever")
	require.Equal(t, int32(-1), g.h.Write(q, []byte{1}))
	g.h.End(q)
	g.h.End(q)
	require.Equal(t, int32(-1), g.h.Read(q, make([]byte, 8)))
}

func TestAdd(t *testing.T) {
	g := newGuest(t, nil)
	a, b, c := g.buffer(8, 1), g.buffer(8, 4), g.buffer(8, 2)
	require.Equal(t, []int32{3, 4, 5}, []int32{a, b, c})
	g.write(a, 1)
	g.write(a, 2)
	require.Equal(t, int32(-1), g.h.Write(a, []byte{0}), "beyond its end")
	g.write(b, 40, 50)

	s := g.must("accel", 3, 0, launch("vecadd_f32", ref(a), ref(b), ref(c)))
	require.Equal(t, []byte{0}, g.all(s))
	require.Equal(t, []float32{41, 52}, g.floats(c))
	require.Equal(t, []float32{1, 2}, g.floats(a), "a submission puts both places back")
	g.write(a, 5, 6)
	require.Zero(t, g.h.Read(c, make([]byte, 8)), "at its end")
	s = g.must("accel", 3, 0, launch("vecadd_f32", ref(a), ref(b), ref(c)))
	require.Equal(t, []float32{45, 56}, g.floats(c), "reading waits for the work")
	require.Equal(t, []byte{0}, g.all(s))

	g.h.End(b)
	_, trace := g.open("accel", 3, 0, launch("vecadd_f32", ref(a), ref(b), ref(c)))
	require.Equal(t, "t_ctl_bad_params", trace, "an ended handle is no argument")
	require.Equal(t, int32(8), g.buffer(8, 0), "refusals use no handle")
}

// TestInlineArguments: each begins at the first field that is not covered, and ends with a field.
func TestInlineArguments(t *testing.T) {
	g := newGuest(t, nil)
	x, y := g.buffer(64, 0), g.buffer(64, 0)
	word := func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
	both := append(word(8), word(0x3727c5ac)...) // n, eps = 1e-5
	for _, c := range []struct {
		args  []raw
		trace string
	}{
		{[]raw{ref(x), ref(x), ref(y), inline(both)}, ""}, // one buffer may be read twice
		{[]raw{inline(word(8)), ref(x), ref(y), inline(word(0x3727c5ac))}, "t_accel_launch_failed"},
		{[]raw{ref(x), ref(y), inline(both[:4])}, "t_accel_launch_failed"},
		{[]raw{ref(x), ref(y), inline(both[:6]), inline(both[6:])}, "t_accel_launch_failed"},
		{[]raw{ref(x), ref(y), inline(both), inline(nil)}, "t_accel_launch_failed"},
	} {
		_, trace := g.open("accel", 3, 0, launch("rmsnorm_f32", c.args...))
		require.Equal(t, c.trace, trace)
	}
	z := g.buffer(64, 0)
	for _, args := range [][]raw{
		{ref(x), ref(y), ref(z), inline(both)},
		{inline(both[:4]), ref(x), ref(y), inline(both[4:]), ref(z)},
	} {
		require.Equal(t, []byte{0}, g.all(g.must("accel", 3, 0, launch("rmsnorm_f32", args...))))
	}
}

// TestRefusals: each has its trace, and uses no handle.
func TestRefusals(t *testing.T) {
	g := newGuest(t, nil)
	buf, readOnly := g.buffer(64, 0), g.buffer(64, 1)
	stream := g.must("accel.ext", 1, 0, payload("spirv", "0", 0))
	event := g.must("accel.ext", 3, 0, payload("spirv", "0", 1))
	ones := [3]int{1, 1, 1}
	good := launch("fill_u32", ref(buf), inline([]byte{1, 0, 0, 0}))
	at := func(p []byte, i int, b byte) []byte {
		p = bytes.Clone(p)
		p[i] = b
		return p
	}
	kernelAt := len(payload("spirv", "0", "capgpu", "fill_u32")) // grid begins here

	for name, c := range map[string]struct {
		kind   string
		mode   int
		params []byte
		trace  string
	}{
		"no such kind":                     {"sound", 1, nil, "t_cap_missing"},
		"no such mode":                     {"accel", 5, payload("spirv"), "t_ctl_bad_params"},
		"no such extension mode":           {"accel.ext", 9, payload("spirv", "0"), "t_ctl_bad_params"},
		"query: trailing byte":             {"accel", 1, append(payload("spirv"), 0), "t_ctl_bad_params"},
		"query: too short":                 {"accel", 1, payload("spirv")[:5], "t_ctl_bad_params"},
		"query: no UTF-8":                  {"accel", 1, payload("spir\xff"), "t_ctl_bad_params"},
		"query: no such backend":           {"accel", 1, payload("cuda"), "t_accel_no_device"},
		"buffer: backend":                  {"accel", 2, payload("cuda", "0", uint64(4), 0), "t_accel_no_device"},
		"buffer: device":                   {"accel", 2, payload("spirv", "1", uint64(4), 0), "t_accel_no_device"},
		"buffer: leading zero":             {"accel", 2, payload("spirv", "00", uint64(4), 0), "t_accel_no_device"},
		"buffer: no bytes":                 {"accel", 2, payload("spirv", "0", uint64(0), 0), "t_ctl_bad_params"},
		"buffer: too many bytes":           {"accel", 2, payload("spirv", "0", uint64(1)<<63, 0), "t_ctl_bad_params"},
		"buffer: both":                     {"accel", 2, payload("spirv", "0", uint64(4), 3), "t_ctl_bad_params"},
		"buffer: unknown flag":             {"accel", 2, payload("spirv", "0", uint64(4), 8), "t_ctl_bad_params"},
		"submit: cut":                      {"accel", 3, good[:len(good)-1], "t_ctl_bad_params"},
		"submit: trailing byte":            {"accel", 3, append(bytes.Clone(good), 0), "t_ctl_bad_params"},
		"submit: grid":                     {"accel", 3, at(good, kernelAt, 0), "t_ctl_bad_params"},
		"submit: block":                    {"accel", 3, at(good, kernelAt+20, 0), "t_ctl_bad_params"},
		"submit: block too large":          {"accel", 3, at(good, kernelAt+15, 1), "t_accel_launch_failed"},
		"submit: too many args":            {"accel", 3, at(good, kernelAt+28, 65), "t_ctl_bad_params"},
		"submit: kind":                     {"accel", 3, at(good, kernelAt+32, 3), "t_ctl_bad_params"},
		"submit: reserved":                 {"accel", 3, at(good, kernelAt+33, 1), "t_ctl_bad_params"},
		"submit: flags":                    {"accel", 3, at(good, kernelAt+34, 1), "t_ctl_bad_params"},
		"submit: size of a handle":         {"accel", 3, at(good, kernelAt+36, 8), "t_ctl_bad_params"},
		"submit: handle":                   {"accel", 3, launch("fill_u32", ref(stream), inline(make([]byte, 4))), "t_ctl_bad_params"},
		"submit: inline":                   {"accel", 3, launch("fill_u32", ref(buf), inline(make([]byte, 257))), "t_ctl_bad_params"},
		"submit: names":                    {"accel", 3, launch(strings.Repeat("k", 507)), "t_ctl_bad_params"},
		"submit: module":                   {"accel", 3, submission("other", "fill_u32", ones, ones, 0, 0), "t_accel_kernel_not_found"},
		"submit: kernel":                   {"accel", 3, launch("no_such_kernel"), "t_accel_kernel_not_found"},
		"submit: too few":                  {"accel", 3, launch("fill_u32", ref(buf)), "t_accel_launch_failed"},
		"submit: too many":                 {"accel", 3, launch("fill_u32", ref(buf), ref(buf), inline(make([]byte, 4))), "t_accel_launch_failed"},
		"submit: writes what is read only": {"accel", 3, launch("fill_u32", ref(readOnly), inline(make([]byte, 4))), "t_accel_launch_failed"},
		"submit: other block":              {"accel", 3, submission("capgpu", "spin", ones, ones, 0, 0), "t_accel_launch_failed"},
		"submit: shared":                   {"accel", 3, submission("capgpu", "fill_u32", ones, [3]int{256, 1, 1}, 1<<30, 0, ref(buf), inline(make([]byte, 4))), "t_ctl_bad_params"},
		"sync: queue":                      {"accel", 4, payload("spirv", "0", "2"), "t_ctl_bad_params"},
		"sync: leading zero":               {"accel", 4, payload("spirv", "0", "01"), "t_ctl_bad_params"},
		"sync: device":                     {"accel", 4, payload("spirv", "", "default"), "t_accel_no_device"},
		"ext: device":                      {"accel.ext", 1, payload("spirv", "9", 0), "t_accel_no_device"},
		"stream: flags":                    {"accel.ext", 1, payload("spirv", "0", 3), "t_ctl_bad_params"},
		"stream: destroy":                  {"accel.ext", 2, payload("spirv", "0", 7), "t_accel_invalid_handle"},
		"stream: destroy default":          {"accel.ext", 2, payload("spirv", "0", 0), "t_accel_invalid_handle"},
		"event: flags":                     {"accel.ext", 3, payload("spirv", "0", 2), "t_ctl_bad_params"},
		"event: record, stream":            {"accel.ext", 4, payload("spirv", "0", 7, 1), "t_accel_invalid_handle"},
		"event: record, event":             {"accel.ext", 4, payload("spirv", "0", 1, 7), "t_accel_invalid_handle"},
		"event: wait, stream":              {"accel.ext", 5, payload("spirv", "0", 7, 1, 0), "t_accel_invalid_handle"},
		"event: wait, event":               {"accel.ext", 5, payload("spirv", "0", 0, 7, 0), "t_accel_invalid_handle"},
		"copy: flags":                      {"accel.ext", 6, payload("spirv", "0", buf, readOnly, uint64(4), 2), "t_ctl_bad_params"},
		"copy: no buffer":                  {"accel.ext", 6, payload("spirv", "0", buf, event, uint64(4), 0), "t_accel_invalid_handle"},
		"copy: beyond":                     {"accel.ext", 6, payload("spirv", "0", buf, readOnly, uint64(65), 0), "t_accel_copy_failed"},
		"copy: itself":                     {"accel.ext", 6, payload("spirv", "0", buf, buf, uint64(4), 0), "t_accel_copy_failed"},
		"copy: nothing":                    {"accel.ext", 6, payload("spirv", "0", buf, readOnly, uint64(0), 0), "t_accel_copy_failed"},
		"load: no module":                  {"accel.ext", 7, payload("spirv", "0", "no SPIR-V", "x"), "t_accel_module_invalid"},
		"load: empty":                      {"accel.ext", 7, payload("spirv", "0", "", "x"), "t_accel_module_invalid"},
		"load: the library":                {"accel.ext", 7, payload("spirv", "0", "x", "capgpu"), "t_ctl_bad_params"},
		"unload: unknown":                  {"accel.ext", 8, payload("spirv", "0", "x"), "t_accel_invalid_handle"},
		"unload: the library":              {"accel.ext", 8, payload("spirv", "0", "capgpu"), "t_cap_denied"},
	} {
		_, trace := g.open(c.kind, c.mode, 0, c.params)
		require.Equal(t, c.trace, trace, name)
	}
	require.Equal(t, event+1, g.buffer(4, 0), "refusals use no handle")

	for name, c := range map[string]struct {
		op      uint16
		payload []byte
		trace   string
	}{
		"list: payload":   {1, []byte{0}, "t_ctl_bad_params"},
		"describe: cut":   {2, payload("accel"), "t_ctl_bad_params"},
		"describe: name":  {2, payload("accel", "second"), "t_cap_missing"},
		"open: name":      {3, payload("accel", "second", 1, payload("spirv")), "t_cap_missing"},
		"open: trailing":  {3, append(payload("accel", "default", 1, payload("spirv")), 0), "t_ctl_bad_params"},
		"no such op":      {4, nil, "t_ctl_unknown_op"},
		"ops of the wire": {1001, payload(3, 4), "t_ctl_unknown_op"},
		"length beyond":   {2, payload(raw{0xff, 0xff, 0xff, 0xff}), "t_ctl_bad_params"},
	} {
		require.Equal(t, c.trace, g.ctl(c.op, 0, c.payload).trace, name)
	}
}

// TestFrames: the header is looked at in the ABI's order.
func TestFrames(t *testing.T) {
	g := newGuest(t, nil)
	good := frame(3, 9, 0, payload("accel", "default", 2, payload("spirv", "0", uint64(4), 0)))
	at := func(i int, b byte) []byte {
		p := bytes.Clone(good)
		p[i] = b
		return p
	}
	resp := make([]byte, 4096)
	for name, c := range map[string]struct {
		req   []byte
		trace string
	}{
		"magic":       {at(0, 'X'), "t_ctl_bad_frame"},
		"no header":   {good[:23], "t_ctl_bad_frame"},
		"version":     {at(4, 2), "t_ctl_bad_version"},
		"flags":       {at(16, 1), "t_ctl_bad_frame"},
		"too short":   {good[:len(good)-1], "t_ctl_bad_frame"},
		"too long":    {append(bytes.Clone(good), 0), "t_ctl_bad_frame"},
		"op, payload": {at(6, 77), "t_ctl_unknown_op"},
	} {
		n := g.h.Ctl(c.req, resp)
		require.Positive(t, n, name)
		require.Equal(t, c.trace, parseAnswer(t, c.req, resp[:n]).trace, name)
	}
	require.Equal(t, int32(-1), g.h.Ctl(good[:11], resp))

	for room := range 36 {
		require.Equal(t, int32(-1), g.h.Ctl(good, resp[:room]), "no room, so nothing is done")
	}
	clear(resp)
	require.Equal(t, int32(36), g.h.Ctl(good, resp[:36]))
	require.Equal(t, uint32(3), binary.LittleEndian.Uint32(resp[24:]), "the first handle")
	require.Equal(t, make([]byte, 100), resp[36:136], "nothing beyond")
}

func TestStandardHandles(t *testing.T) {
	var out, log bytes.Buffer
	g := newGuest(t, func(c *zing.Config) { c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in"), &out, &log })
	require.Equal(t, "in", string(g.all(0)))
	require.Equal(t, int32(3), g.h.Write(1, []byte("out")))
	require.Equal(t, int32(3), g.h.Write(2, []byte("log")))
	g.h.Log([]byte("topic"), []byte("msg"))
	require.Equal(t, "out", out.String())
	require.Equal(t, "logtopic: msg\n", log.String())
	p := make([]byte, 4)
	for _, n := range []int32{g.h.Read(1, p), g.h.Write(0, p), g.h.Read(-1, p), g.h.Write(99, p), g.h.Read(99, nil)} {
		require.Equal(t, int32(-1), n)
	}
	require.Zero(t, g.h.Read(0, nil))
	require.Zero(t, g.h.Write(1, nil))
	g.h.End(1)
	require.Equal(t, int32(-1), g.h.Write(1, p))
}

// TestFailuresAreRecords: what is known only afterwards is told by the record, with the outcome.
func TestFailuresAreRecords(t *testing.T) {
	g := newGuest(t, nil)
	spin := submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 5)
	s := g.must("accel", 3, 0, spin)
	b := g.all(s)
	require.Equal(t, payload(uint8(1), "t_ctl_timeout", "timedOut: hang", append([]byte{byte(outcome.TimedOut), byte(outcome.Hang)}, make([]byte, 22)...)), b)

	buf := g.buffer(16, 0)
	s = g.must("accel", 3, 0, submission("capgpu", "trap", [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, 0, ref(buf)))
	b = g.all(s)
	require.Equal(t, payload(uint8(1), "t_accel_launch_failed", "failed: trap outOfBounds binding=0 offset=16 workgroup=0 lane=0"), b[:len(b)-28])
	require.Equal(t, []byte{24, 0, 0, 0, byte(outcome.Failed), byte(outcome.TrapCause), byte(outcome.OutOfBounds), 0}, b[len(b)-28:len(b)-20])
	_, trace := g.open("accel", 3, 0, launch("fill_u32", ref(buf), inline(make([]byte, 4))))
	require.Equal(t, "t_accel_launch_failed", trace, "a poisoned session")
	require.Len(t, g.all(buf), 16, "which can be read")
}

func TestSyncAndQueue(t *testing.T) {
	g := newGuest(t, nil)
	spin := submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 300)
	s := g.must("accel", 3, 0, spin)
	for _, timeout := range []uint32{0, 1} {
		_, trace := g.open("accel", 4, timeout, payload("spirv", "0", "default"))
		require.Equal(t, "t_ctl_timeout", trace)
	}
	require.Equal(t, []byte{1}, g.all(g.must("accel", 4, 5000, payload("spirv", "0", "default"))))
	require.Equal(t, byte(1), g.all(s)[0], "sync says that it ended, the record how")

	buf := g.buffer(4, 0)
	fill := launch("fill_u32", ref(buf), inline(make([]byte, 4)))
	for range 64 {
		g.must("accel", 3, 0, fill)
	}
	_, trace := g.open("accel", 3, 0, fill)
	require.Equal(t, "t_ctl_overflow", trace)
	g.must("accel", 4, 5000, payload("spirv", "0", "default"))
	s = g.must("accel", 3, 0, fill)
	require.Equal(t, []byte{0}, g.all(s))
}

func TestQuotaIsDenied(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.MaxBufferBytes = 1 << 40 }})
	g := guestOf(t, svc, nil)
	for range 64 {
		if _, trace := g.open("accel", 2, 0, payload("spirv", "0", uint64(1)<<32, 0)); trace != "" {
			require.Equal(t, "t_cap_denied", trace)
			return
		}
	}
	t.Fatal("memory without an end")
}

// TestZingProgramsAreApart: a handle of one guest is nothing to another.
func TestZingProgramsAreApart(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	g, other := guestOf(t, svc, nil), guestOf(t, svc, nil)
	buf := g.buffer(4, 0)
	_, trace := other.open("accel", 3, 0, launch("fill_u32", ref(buf), inline(make([]byte, 4))))
	require.Equal(t, "t_ctl_bad_params", trace)
	require.NoError(t, other.h.Close())
	require.Equal(t, int32(-1), other.h.Ctl(frame(1, 1, 0, nil), make([]byte, 4096)))
	require.Equal(t, int32(-1), other.h.Read(0, make([]byte, 4)))
	g.write(buf, 1)
}

// TestCloseEndsACallThatWaits: a guest that hangs keeps no host.
func TestCloseEndsACallThatWaits(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	h, err := zing.NewHost(context.Background(), zing.Config{Conn: svc.Dial(t)})
	require.NoError(t, err)
	g := &guest{t: t, h: h}
	s := g.must("accel", 3, 0, submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 0))
	read := make(chan int32)
	go func() { read <- h.Read(s, make([]byte, 64)) }()
	require.NoError(t, h.Close())
	<-read
}
