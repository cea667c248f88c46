package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// row is one wrong call: its description, the expected refusal, and the call.
type row struct {
	what  string
	codes []gpuerr.Code
	names string // regular expression that the message must match, in any case
	call  func(ctx context.Context) error
}

// arguments:
//
//	Given a session with a few objects,
//	when each argument of each call is zero, huge, misaligned, overflowing, duplicate or
//	unknown, and when a connection sends bytes that are no message at all,
//	then each call is refused with its code and the name of the field, each such
//	connection is closed; nothing is charged, no memory is allocated for it, and the
//	same driver continues.
//
// Sources: Magma ExecuteCommandBuffer_*; gVisor #13689; IGT create-massive-size,
// create-invalid-mbz; seed 004's launch limits.
func arguments(c *Case) {
	c.nothingHeld(Alice) // sessions of an earlier behaviour may still be closing
	s := c.session(Alice)
	d := c.describe(s)
	t := &table{c: c, s: s, d: d, q: c.queue(s), a: c.buffer(s, 4096), b: c.buffer(s, 4096), line: c.fence(s)}
	c.Must(t.line.Signal(c.Ctx, 5), "signal")
	w := c.work(s, Normal, 0)
	for _, command := range w.Commands {
		if command.Op == Launch {
			t.launch = command
		}
	}

	if t.launch.Program == nil {
		t.launch = c.work(s, Fault, 0).Commands[0] // any launch: it will not be run
	}

	driver := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	held := get[string](c, "read the charges")(c.held(Alice))
	memory := c.ownMemory(driver)
	rows := t.rows()
	for _, r := range rows {
		err := r.call(c.Ctx)
		if why := refusal(err, r.codes...); why != "" {
			c.Failf("%s: %s", r.what, why)
		} else if !regexp.MustCompile("(?i)" + r.names).MatchString(err.Error()) {
			c.Failf("%s: %q does not name %q", r.what, err, r.names)
		}
	}

	streams := malformed()
	for what, text := range streams {
		ctx, cancel := c.brief()
		if err := c.Stack.Raw(ctx, Alice, text); err != nil {
			c.Failf("%s on a connection: %v", what, err)
		}
		cancel()
	}

	c.Eventually("nothing is charged for what was refused", func() error {
		now, err := c.held(Alice)
		if err == nil && now != held {
			err = fmt.Errorf("%s before, and now %s", held, now)
		}
		return err
	})

	const room = 64 << 20 // the driver's own memory: nothing of the requests
	grown := c.ownMemory(driver) - memory
	c.That(grown < room, "the driver took %d MiB for what it refused", grown>>20)
	now := get[int](c, "find the driver")(c.Stack.Driver(c.Ctx, 0))
	c.That(now == driver, "the driver is another one now: one of the calls has killed it")
	c.normal(s)
	c.Notef("%d rows, %d malformed streams; the driver grew by %d KiB", len(rows), len(streams), max(grown, 0)>>10)
}

// table makes rows on a session.
type table struct {
	c      *Case
	s      Session
	d      client.Description
	q      Queue
	a, b   Buffer // of 4,096 bytes
	line   Fence  // with value 5
	launch Command
}

// try submits a command and returns why it was refused, at once or by its
// completion.
func (t *table) try(change func(x *Command), base Command) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		x := base
		x.Bindings = append([]Binding(nil), base.Bindings...)
		change(&x)
		if _, err := t.q.Submit(ctx, x); err != nil {
			return err
		}

		done, err := await(ctx, t.q, 1)
		switch {
		case err != nil:
			return err
		case done[0].Outcome.Kind == outcome.OK:
			return nil
		case done[0].Err == nil:
			return fmt.Errorf("ended %v without saying why", done[0].Outcome)
		}

		return done[0].Err
	}
}

func (t *table) rows() []row {
	invalid, limit := []gpuerr.Code{gpuerr.Invalid}, []gpuerr.Code{gpuerr.LaunchLimit, gpuerr.Invalid}
	fill := func(change func(x *Command)) func(ctx context.Context) error {
		return t.try(change, Command{Op: Fill, Dst: t.a, Bytes: 64, Pattern: 1})
	}

	copied := func(change func(x *Command)) func(ctx context.Context) error {
		return t.try(change, Command{Op: Copy, Dst: t.a, Src: t.b, Bytes: 64})
	}

	launch := func(change func(x *Command)) func(ctx context.Context) error { return t.try(change, t.launch) }
	create := func(bytes uint64, usage uint32) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := t.s.BufferOf(ctx, bytes, usage); return err }
	}

	const storage, huge = uint32(client.Storage), math.MaxUint64
	load := func(n int) func(ctx context.Context) error {
		return func(ctx context.Context) error { _, err := t.s.Load(ctx, make([]byte, n)); return err }
	}

	bundle := []gpuerr.Code{gpuerr.Invalid, gpuerr.Program, gpuerr.Unimplemented}
	one := client.Dim3{X: 1, Y: 1, Z: 1}
	tooMany := invalid // for the program
	if len(t.launch.Bindings) >= int(t.d.MaxBindings) {
		tooMany = limit // for any program of the device
	}

	return []row{
		{"a buffer of no bytes", invalid, "bytes", create(0, storage)},
		{"a buffer larger than the largest", invalid, "bytes", create(t.d.MaxBufferBytes+1, storage)},
		{"a buffer of 2^63 bytes", invalid, "bytes", create(1<<63, storage)},
		{"a buffer of 2^64-1 bytes", invalid, "bytes", create(huge, storage)},
		{"the largest buffer, which nobody has room for", []gpuerr.Code{gpuerr.Quota}, t.c.Stack.Can().Memory, create(t.d.MaxBufferBytes, storage)},
		{"an unknown usage", invalid, "usage", create(4096, 16)},
		{"a fill that begins behind the end", invalid, "off", fill(func(x *Command) { x.DstOff = 4096 })},
		{"a fill that ends behind the end", invalid, "length|bytes", fill(func(x *Command) { x.DstOff = 4096 - 32 })},
		{"a fill whose end overflows", invalid, "off", fill(func(x *Command) { x.DstOff = huge - 31 })},
		{"a fill of 2^63 bytes", invalid, "length|bytes", fill(func(x *Command) { x.Bytes = 1 << 63 })},
		{"a fill at a misaligned offset", invalid, "words", fill(func(x *Command) { x.DstOff = 2 })},
		{"a fill of a misaligned length", invalid, "words", fill(func(x *Command) { x.Bytes = 6 })},
		{"a fill of no buffer", []gpuerr.Code{gpuerr.Invalid, gpuerr.Stale}, "buffer", fill(func(x *Command) { x.Dst = nil })},
		{"a copy from behind the end", invalid, "src|length", copied(func(x *Command) { x.SrcOff = 4096 })},
		{"a copy to behind the end", invalid, "dst|length", copied(func(x *Command) { x.DstOff = 4095 })},
		{"a copy whose end overflows", invalid, "off", copied(func(x *Command) { x.SrcOff, x.Bytes = huge-1, 4 })},
		{"a copy of nothing", invalid, "length|bytes", copied(func(x *Command) { x.Bytes = 0 })},
		{"a fill of nothing", invalid, "length|bytes", fill(func(x *Command) { x.Bytes = 0 })},
		{"a copy of 2^63 bytes", invalid, "length|bytes", copied(func(x *Command) { x.Bytes = 1 << 63 })},
		{"a copy from no buffer", []gpuerr.Code{gpuerr.Invalid, gpuerr.Stale}, "src", copied(func(x *Command) { x.Src = nil })},
		{"a launch of no program", []gpuerr.Code{gpuerr.Invalid, gpuerr.Stale}, "program", launch(func(x *Command) { x.Program = nil })},
		{"a grid beyond the limit", limit, "grid|workgroups", launch(func(x *Command) { x.Grid, x.Block = client.Dim3{X: t.d.MaxGridDim + 1, Y: 1, Z: 1}, one })},
		{"a grid of all ones", limit, "grid|workgroups", launch(func(x *Command) {
			x.Grid, x.Block = client.Dim3{X: math.MaxUint32, Y: math.MaxUint32, Z: math.MaxUint32}, one
		})},
		{"a block of too many threads", limit, "block|thread", launch(func(x *Command) {
			x.Grid, x.Block = one, client.Dim3{X: t.d.MaxThreadsPerBlock, Y: 2, Z: 1}
		})},
		{"a block of no depth", limit, "block|thread", launch(func(x *Command) { x.Grid, x.Block = one, client.Dim3{X: 1, Y: 1} })},
		{"too much shared memory", limit, "shared", launch(func(x *Command) {
			x.Grid, x.Block, x.SharedBytes = one, client.Dim3{X: 64, Y: 1, Z: 1}, t.d.MaxSharedBytes+4
		})},
		{"a binding too few", invalid, "binding|buffers", launch(func(x *Command) { x.Bindings = x.Bindings[1:] })},
		{"a binding too many", tooMany, "binding|buffers", launch(func(x *Command) { x.Bindings = append(x.Bindings, Binding{Buffer: t.a}) })},
		{"10,000 bindings", limit, "binding", launch(func(x *Command) {
			for len(x.Bindings) < 10_000 {
				x.Bindings = append(x.Bindings, Binding{Buffer: t.a})
			}
		})},
		{"a binding from behind the end", invalid, "binding", launch(func(x *Command) { x.Bindings[0].Off = 1 << 20 })},
		{"a binding whose end overflows", invalid, "binding", launch(func(x *Command) { x.Bindings[0].Off, x.Bindings[0].Len = 8, huge })},
		{"inline bytes too many", limit, "inline", launch(func(x *Command) { x.Inline = make([]byte, 12) })},
		{"a fence signalled backwards", invalid, "value", func(ctx context.Context) error { return t.line.Signal(ctx, 3) }},
		{"a fence signalled twice", invalid, "value", func(ctx context.Context) error { return t.line.Signal(ctx, 5) }},
		{"a program of no such name", []gpuerr.Code{gpuerr.NoProgram}, "program", func(ctx context.Context) error {
			_, err := t.s.Program(ctx, "no_such_program")
			return err
		}},
		{"a bundle of no bytes", bundle, "", load(0)},
		{"a bundle of zeros", bundle, "", load(256)},
		{"a bundle above the largest", bundle, "", load(client.MaxBundleBytes + 1)},
		{"a limit of no such resource", invalid, "limit|resource", func(ctx context.Context) error {
			_, err := t.s.Restrict(ctx, client.Policy{Limits: map[string]uint64{"nonsense": 1}})
			return err
		}},
		{"a facet that there is not", []gpuerr.Code{gpuerr.Invalid, gpuerr.Denied, gpuerr.Protocol}, "facet", func(ctx context.Context) error {
			_, err := t.s.Restrict(ctx, client.Policy{Facet: 9})
			return err
		}},
	}
}

// malformed are streams that are no message of any protocol, or an oversized one.
func malformed() map[string][]byte {
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}

	// One segment with a root pointer to itself, by way of a list.
	cycle := binary.LittleEndian.AppendUint64(nil, 5<<32)
	for _, word := range []uint64{0x0001_0001_0000_0000 - 4, 0x0000_0006_ffff_fffd, 0, 0, 0} {
		cycle = binary.LittleEndian.AppendUint64(cycle, word)
	}

	return map[string][]byte{
		"noise":             noise,
		"ones":              bytes.Repeat([]byte{0xff}, 4096),
		"zeros":             make([]byte, 4096),
		"a byte":            {1},
		"a huge segment":    binary.LittleEndian.AppendUint64(nil, 0x7fffffff<<32),
		"too many segments": binary.LittleEndian.AppendUint32(nil, 0xfffffffe),
		"a cycle":           cycle,
	}
}
