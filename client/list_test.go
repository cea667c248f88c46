package client_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func openProgram(t *testing.T, s *client.Session, name string) *client.Program {
	t.Helper()
	p, err := s.OpenProgram(testContext(t), name)
	require.NoError(t, err)
	return p
}

func newBuffer(t *testing.T, s *client.Session, bytes uint64) *client.Buffer {
	t.Helper()
	b, err := s.CreateBuffer(testContext(t), bytes, client.Storage)
	require.NoError(t, err)
	return b
}

func read(t *testing.T, b *client.Buffer) []byte {
	t.Helper()
	p := make([]byte, b.Size())
	n, err := b.ReadAt(p, 0)
	require.NoError(t, err)
	require.Equal(t, len(p), n)
	return p
}

func TestList(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	fill := openProgram(t, s, "fill_u32")
	vecadd := openProgram(t, s, "vecadd_f32")
	a, b, c := newBuffer(t, s, 256), newBuffer(t, s, 256), newBuffer(t, s, 256)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	one := binary.LittleEndian.AppendUint32(nil, 0x3f800000) // 1.0
	l, err := s.RecordList(ctx,
		&client.Launch{Program: fill, Bindings: []client.Binding{{Buffer: a}}, Inline: one},
		&client.Fill{Buffer: b, Bytes: 256, Pattern: 0x40000000}, // 2.0
		&client.Launch{Program: vecadd, Bindings: []client.Binding{{Buffer: a}, {Buffer: b}, {Buffer: c}}},
		&client.Copy{Dst: a, Src: c, Bytes: 128},
	)
	require.NoError(t, err)
	require.NotZero(t, l.Handle())
	require.NoError(t, q.Run(ctx, l.Replay()))
	three := bytes.Repeat([]byte{0, 0, 0x40, 0x40}, 64)
	require.Equal(t, three, read(t, c))
	require.Equal(t, append(bytes.Clone(three[:128]), bytes.Repeat(one, 32)...), read(t, a))

	// 5.0 in a, and only the second half of c.
	five := binary.LittleEndian.AppendUint32(nil, 0x40400000)
	require.NoError(t, q.Run(ctx, &client.Fill{Buffer: c, Bytes: 256}))
	require.NoError(t, q.Run(ctx, l.Replay(
		client.Patch{Command: 0, Inline: five},
		client.Patch{Command: 2, At: 0, Len: 128}, client.Patch{Command: 2, At: 1, Len: 128}, client.Patch{Command: 2, At: 2, Off: 128, Len: 128},
	)))
	require.Equal(t, append(make([]byte, 128), bytes.Repeat([]byte{0, 0, 0xa0, 0x40}, 32)...), read(t, c))

	for _, bad := range []*client.Replay{
		{}, l.Replay(client.Patch{Command: 4}), l.Replay(client.Patch{Command: -1}), l.Replay(client.Patch{At: -1}),
		{List: l, Deadline: -1}, l.Replay(client.Patch{Inline: make([]byte, 1<<20)}),
	} {
		_, err := q.PushReplay(bad)
		require.ErrorIs(t, err, gpuerr.Invalid, "%+v", bad)
	}
	err = q.Run(ctx, l.Replay(client.Patch{Command: 0, At: 1, Len: 4}))
	require.ErrorIs(t, err, gpuerr.Invalid, "the driver checks what the client cannot")

	require.NoError(t, a.Close(ctx))
	require.ErrorIs(t, q.Run(ctx, l.Replay()), gpuerr.Stale)
	require.NoError(t, l.Close(ctx))
	require.NoError(t, l.Close(ctx))
	require.NoError(t, s.Close(ctx))
	_, err = q.PushReplay(l.Replay())
	require.ErrorIs(t, err, gpuerr.Closed)
}

func TestRecordListRefuses(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s, other := svc.Open(t), svc.Open(t)
	a, foreign := newBuffer(t, s, 256), newBuffer(t, other, 256)
	fill := openProgram(t, s, "fill_u32")
	fence, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	good := &client.Fill{Buffer: a, Bytes: 4}
	for _, c := range []struct {
		bad  client.Command
		code gpuerr.Code
	}{
		{&client.Signal{Fence: fence, Value: 1}, gpuerr.Invalid},
		{&client.Fill{Buffer: a, Bytes: 4, Deadline: time.Second}, gpuerr.Invalid},
		{&client.Fill{Buffer: foreign, Bytes: 4}, gpuerr.Invalid},
		{&client.Copy{Dst: a, Src: foreign, Bytes: 4}, gpuerr.Invalid},
		{&client.Copy{Dst: a, Bytes: 4}, gpuerr.Invalid},
		{&client.Launch{}, gpuerr.Invalid},
		{&client.Launch{Program: fill, Bindings: []client.Binding{{}}}, gpuerr.Invalid},
		{&client.Launch{Program: fill, Bindings: []client.Binding{{Buffer: a, Off: 256}}}, gpuerr.Invalid},
		{&client.Launch{Program: fill, Inline: make([]byte, 65<<10)}, gpuerr.LaunchLimit},
		{&client.Launch{Program: fill, Block: client.Dim3{X: 1 << 20, Y: 1, Z: 1}}, gpuerr.LaunchLimit},
		{&client.Launch{Program: fill, Bindings: []client.Binding{{Buffer: a}}}, gpuerr.Invalid}, // says the driver: no inline bytes
		{&client.Fill{Buffer: a, Off: 4096, Bytes: 4}, gpuerr.Invalid},
	} {
		_, err := s.RecordList(ctx, good, c.bad)
		require.Equal(t, c.code, gpuerr.CodeOf(err), "%#v: %v", c.bad, err)
		require.ErrorContains(t, err, " 1: ", "%#v", c.bad)
	}
	_, err = s.RecordList(ctx)
	require.ErrorIs(t, err, gpuerr.Invalid)
	many := make([]client.Command, client.MaxListCommands+1)
	for i := range many {
		many[i] = good
	}
	_, err = s.RecordList(ctx, many...)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = s.RecordList(ctx, many[1:]...)
	require.NoError(t, err)
	used, err := s.Budget(ctx)
	require.NoError(t, err)
	for _, e := range used {
		if e.Resource == "buffers" {
			require.EqualValues(t, 1, e.Used, "the recordings are gone")
		}
	}
}

// A trap in a list says where it was and poisons the session.
func TestListTraps(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	a := newBuffer(t, s, 256)
	l, err := s.RecordList(ctx, &client.Fill{Buffer: a, Bytes: 4, Pattern: 1},
		&client.Launch{Program: openProgram(t, s, "trap"), Bindings: []client.Binding{{Buffer: a}}},
		&client.Fill{Buffer: a, Bytes: 4, Pattern: 2})
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	var failed *client.OutcomeError
	require.ErrorAs(t, q.Run(ctx, l.Replay()), &failed)
	require.Equal(t, outcome.OutOfBounds, failed.Outcome.Trap.Kind)
	require.EqualValues(t, 1, read(t, a)[0])
	_, err = q.PushReplay(l.Replay())
	require.ErrorIs(t, err, gpuerr.Poisoned)
}

// Whatever a list is made of and patched with: it does what the commands do that are
// submitted one by one.
func TestListAgainstCommands(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	programs := map[string]*client.Program{}
	for _, name := range []string{"fill_u32", "vecadd_f32", "copy", "saxpy_f32"} {
		programs[name] = openProgram(t, s, name)
	}
	const buffers, bytesEach = 4, 1024
	r := rand.New(rand.NewPCG(3, 9))
	for round := range 40 {
		// Two sets of the same buffers: one for the list, one for the commands.
		var sets [2][buffers]*client.Buffer
		for i := range buffers {
			data := make([]byte, bytesEach)
			for k := 0; k < len(data); k += 4 {
				binary.LittleEndian.PutUint32(data[k:], 0x3f800000+r.Uint32N(1<<20))
			}
			for set := range sets {
				sets[set][i] = newBuffer(t, s, bytesEach)
				_, err := sets[set][i].WriteAt(data, 0)
				require.NoError(t, err)
			}
		}
		rangeOf := func(n uint64) uint64 { return r.Uint64N((bytesEach-n)/4+1) * 4 }
		var makers []func(set *[buffers]*client.Buffer) client.Command
		for range 1 + r.IntN(12) {
			n, i, k, m := 4+4*r.Uint64N(100), r.IntN(buffers), r.IntN(buffers), r.IntN(buffers)
			if i == k {
				k = (k + 1) % buffers
			}
			at, to, from, word := rangeOf(n), rangeOf(n), rangeOf(n), r.Uint32()%(1<<29)
			makers = append(makers, [...]func(set *[buffers]*client.Buffer) client.Command{
				func(set *[buffers]*client.Buffer) client.Command {
					return &client.Fill{Buffer: set[i], Off: at, Bytes: n, Pattern: word}
				},
				func(set *[buffers]*client.Buffer) client.Command {
					return &client.Copy{Dst: set[i], DstOff: at, Src: set[k], SrcOff: from, Bytes: n}
				},
				func(set *[buffers]*client.Buffer) client.Command {
					return &client.Launch{Program: programs["fill_u32"], Bindings: []client.Binding{{Buffer: set[i], Off: at, Len: n}}, Inline: binary.LittleEndian.AppendUint32(nil, word)}
				},
				func(set *[buffers]*client.Buffer) client.Command {
					return &client.Launch{Program: programs["vecadd_f32"], Bindings: []client.Binding{{Buffer: set[i], Off: at, Len: n}, {Buffer: set[k], Off: to, Len: n}, {Buffer: set[(m+k)%buffers], Off: from, Len: n}}}
				},
			}[r.IntN(4)])
		}
		var recorded, plain []client.Command
		for _, maker := range makers {
			recorded = append(recorded, maker(&sets[0]))
			plain = append(plain, maker(&sets[1]))
		}
		l, err := s.RecordList(ctx, recorded...)
		require.NoError(t, err)
		for range 4 {
			var patches []client.Patch
			now := make([]client.Command, len(plain))
			for i := range plain {
				now[i] = plain[i]
				if r.IntN(2) == 0 {
					var p client.Patch
					now[i], p = patched(r, plain[i], i, bytesEach)
					patches = append(patches, p)
				}
			}
			require.NoError(t, q.Run(ctx, l.Replay(patches...)))
			require.NoError(t, q.Run(ctx, now...))
			for i := range buffers {
				require.Equal(t, read(t, sets[1][i]), read(t, sets[0][i]), "round %d, buffer %d", round, i)
			}
		}
		require.NoError(t, l.Close(ctx))
		for _, set := range sets {
			for _, b := range set {
				require.NoError(t, b.Close(ctx))
			}
		}
	}
}

// patched changes a command, and says by which patch.
func patched(r *rand.Rand, c client.Command, i int, bytesEach uint64) (client.Command, client.Patch) {
	at := func(n uint64) uint64 { return r.Uint64N((bytesEach-n)/4+1) * 4 }
	switch c := c.(type) {
	case *client.Fill:
		c2 := *c
		c2.Bytes = 4 + 4*r.Uint64N(100)
		c2.Off = at(c2.Bytes)
		return &c2, client.Patch{Command: i, Off: c2.Off, Len: c2.Bytes}
	case *client.Copy:
		c2 := *c
		if r.IntN(2) == 0 {
			c2.DstOff = at(c.Bytes)
			return &c2, client.Patch{Command: i, At: 0, Off: c2.DstOff}
		}
		c2.SrcOff = at(c.Bytes)
		return &c2, client.Patch{Command: i, At: 1, Off: c2.SrcOff}
	case *client.Launch:
		c2 := *c
		if len(c.Inline) > 0 && r.IntN(2) == 0 {
			off := r.IntN(len(c.Inline))
			c2.Inline = bytes.Clone(c.Inline)
			piece := c2.Inline[off:]
			for k := range piece {
				piece[k] = byte(r.IntN(64))
			}
			return &c2, client.Patch{Command: i, At: off, Inline: bytes.Clone(piece)}
		}
		which := r.IntN(len(c.Bindings))
		c2.Bindings = append([]client.Binding(nil), c.Bindings...)
		b := &c2.Bindings[which]
		b.Off = at(b.Len)
		return &c2, client.Patch{Command: i, At: which, Off: b.Off, Len: b.Len * uint64(r.IntN(2))}
	}
	panic(fmt.Sprintf("%T", c))
}
