package zing_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
	"capgpu/driver/session/sessiontest"
)

var update = flag.Bool("update", false, "write testdata/frames.golden and testdata/specimen.jsonl anew")

// script is a guest that uses every operation once, with what is known only afterwards among it.
func script(g *guest) []byte {
	var seen []byte
	see := func(b []byte) { seen = append(seen, b...) }
	see(g.ctl(1, 0, nil).bytes)
	g.ctl(2, 0, payload("accel.ext", "default"))
	a, b, c := g.buffer(8, 1), g.buffer(8, 4), g.buffer(8, 2)
	g.write(a, 1, 2)
	g.write(b, 3, 4)
	see(g.all(g.must("accel", 3, 0, launch("vecadd_f32", ref(a), ref(b), ref(c)))))
	see(g.all(g.must("accel", 4, 5000, payload("spirv", "0", "default"))))
	see(g.all(c))
	see(g.all(g.must("accel", 3, 0, submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 3))))
	see(g.all(g.must("accel.ext", 1, 0, payload("spirv", "0", 1))))
	see(g.all(g.must("accel.ext", 3, 0, payload("spirv", "0", 1))))
	see(g.all(g.must("accel.ext", 4, 0, payload("spirv", "0", 1, 1))))
	see(g.all(g.must("accel.ext", 5, 5000, payload("spirv", "0", 0, 1, 5000))))
	see(g.all(g.must("accel.ext", 6, 0, payload("spirv", "0", b, a, uint64(8), 0))))
	see(g.all(g.must("accel.ext", 2, 0, payload("spirv", "0", 1))))
	_, trace := g.open("accel", 3, 0, launch("no_such_kernel"))
	see([]byte(trace))
	_, trace = g.open("accel.ext", 7, 0, payload("spirv", "0", "no SPIR-V", "m"))
	see([]byte(trace))
	_, trace = g.open("accel.ext", 8, 0, payload("spirv", "0", "m"))
	see([]byte(trace))
	g.h.Ctl([]byte("short"), make([]byte, 64))
	g.h.Read(77, nil)
	g.h.Write(77, nil)
	g.h.End(a)
	g.h.End(77)
	return seen
}

// TestReplay: a transcript answers as the host did, byte for byte, without a service, and the same
// guest makes the same transcript each time.
func TestReplay(t *testing.T) {
	var first, second bytes.Buffer
	g := newGuest(t, func(c *zing.Config) { c.Record = &first })
	seen := script(g)
	require.NoError(t, g.h.Err())
	require.Equal(t, seen, script(newGuest(t, func(c *zing.Config) { c.Record = &second })))
	require.Equal(t, first.String(), second.String(), "equal runs are equal to the byte")

	h, err := zing.NewReplay(bytes.NewReader(first.Bytes()))
	require.NoError(t, err)
	require.Equal(t, seen, script(&guest{t: t, h: h}))
	require.NoError(t, h.Err())
	require.NoError(t, h.Close())

	require.Equal(t, int32(-1), h.Read(3, nil), "beyond the end")
	require.ErrorContains(t, h.Err(), "the transcript ends")
}

// TestReplayDiffers: the first call that differs is named, with both sides.
func TestReplayDiffers(t *testing.T) {
	var transcript bytes.Buffer
	g := newGuest(t, func(c *zing.Config) { c.Record = &transcript })
	buf := g.buffer(8, 0)
	g.write(buf, 1, 2)
	require.Equal(t, []float32{1, 2}, g.floats(buf))
	g.h.End(buf)
	replay := func(do func(g *guest)) error {
		h, err := zing.NewReplay(bytes.NewReader(transcript.Bytes()))
		require.NoError(t, err)
		do(&guest{t: t, h: h})
		return h.Err()
	}
	again := func(g *guest) int32 { return g.buffer(8, 0) }
	p := make([]byte, 7)
	for _, c := range []struct {
		says string
		do   func(g *guest)
	}{
		{"call 0 differs: the guest has the request", func(g *guest) { g.h.Ctl(frame(1, 1, 0, nil), p) }},
		{"call 0 differs: the guest has read", func(g *guest) { g.h.Read(3, p) }},
		{"call 1 differs: the guest has write of 4 bytes to handle 3", func(g *guest) { g.h.Write(again(g), p[:4]) }},
		{"call 1 differs: the guest has end", func(g *guest) { g.h.End(again(g)) }},
		{"call 2 differs: the guest has read of at most 2 bytes from handle 3", func(g *guest) {
			g.write(again(g), 1, 2)
			require.Equal(t, int32(-1), g.h.Read(3, p[:2]))
			require.Equal(t, int32(-1), g.h.Write(3, p), "and all that follow fail")
		}},
		{"an answer of 35 bytes at most", func(g *guest) {
			g.rid++
			req := frame(3, g.rid, 0, payload("accel", "default", 2, payload("spirv", "0", uint64(8), 0)))
			require.Equal(t, int32(-1), g.h.Ctl(req, make([]byte, 35)))
		}},
	} {
		require.ErrorContains(t, replay(c.do), c.says)
	}
	broken, err := zing.NewReplay(strings.NewReader("{\n"))
	require.NoError(t, err)
	broken.End(3)
	require.ErrorContains(t, broken.Err(), "call 0 of the transcript")
}

// TestGolden: the bytes of every frame, and of the transcript, are those that were promised.
func TestGolden(t *testing.T) {
	var transcript bytes.Buffer
	svc := sessiontest.Start(t, sessiontest.Options{})
	g := guestOf(t, svc, func(c *zing.Config) { c.Record = &transcript })
	script(g)
	var dump strings.Builder
	for _, f := range []struct {
		name string
		req  []byte
	}{
		{"list", frame(1, 1, 0, nil)},
		{"describe", frame(2, 2, 0, payload("accel.ext", "default"))},
		{"query", frame(3, 3, 0, payload("accel", "default", 1, payload("spirv")))},
		{"buffer", frame(3, 4, 0, payload("accel", "default", 2, payload("spirv", "0", uint64(16), 4)))},
		{"submit", frame(3, 5, 0, payload("accel", "default", 3, launch("fill_u32", ref(15), inline([]byte{1, 2, 3, 4}))))},
		{"sync", frame(3, 6, 5000, payload("accel", "default", 4, payload("spirv", "0", "default")))},
		{"stream create", frame(3, 7, 0, payload("accel.ext", "default", 1, payload("spirv", "0", 0)))},
		{"event create", frame(3, 8, 0, payload("accel.ext", "default", 3, payload("spirv", "0", 1)))},
		{"event record", frame(3, 9, 0, payload("accel.ext", "default", 4, payload("spirv", "0", 2, 2)))},
		{"event wait", frame(3, 10, 5000, payload("accel.ext", "default", 5, payload("spirv", "0", 0, 2, 5000)))},
		{"stream destroy", frame(3, 11, 0, payload("accel.ext", "default", 2, payload("spirv", "0", 2)))},
		{"copy", frame(3, 12, 0, payload("accel.ext", "default", 6, payload("spirv", "0", 4, 15, uint64(8), 0)))},
		{"unload", frame(3, 13, 0, payload("accel.ext", "default", 8, payload("spirv", "0", "m")))},
		{"no such operation", frame(9, 14, 0, nil)},
		{"no frame", []byte("ZCL2\x01\x00\x03\x00\x0f\x00\x00\x00")},
	} {
		resp := make([]byte, 4096)
		n := g.h.Ctl(f.req, resp)
		require.Positive(t, n, f.name)
		fmt.Fprintf(&dump, "%s\n> %s\n< %s\n", f.name, hex.EncodeToString(f.req), hex.EncodeToString(resp[:n]))
	}
	for path, got := range map[string][]byte{"testdata/frames.golden": []byte(dump.String()), "testdata/specimen.jsonl": transcript.Bytes()} {
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), path)
	}
}
