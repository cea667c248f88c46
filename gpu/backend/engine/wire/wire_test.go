package wire

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/program"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func drawBytes(t *rapid.T, most int) []byte {
	b := rapid.SliceOfN(rapid.Byte(), 0, most).Draw(t, "bytes")
	if len(b) == 0 {
		return nil
	}
	return b
}

func drawDim(t *rapid.T, most uint32) program.Dim3 {
	g := rapid.Uint32Range(1, most)
	return program.Dim3{X: g.Draw(t, "x"), Y: g.Draw(t, "y"), Z: g.Draw(t, "z")}
}

func drawEntry(t *rapid.T) Entry {
	e := Entry{Op: rapid.SampledFrom([]Op{OpLaunch, OpCopy, OpFill}).Draw(t, "op")}
	spans := int(spansOf[e.Op])
	if e.Op == OpLaunch {
		spans = rapid.IntRange(0, MaxBindings).Draw(t, "spans")
	}
	length := rapid.Uint64Range(0, 1<<30).Draw(t, "length") * 4
	for range spans {
		e.Spans = append(e.Spans, Span{MemoryID(rapid.Uint32().Draw(t, "memory")), 4 * rapid.Uint64Range(0, 1<<60).Draw(t, "off"), min(length, 1<<32-1)})
	}
	if e.Op == OpFill {
		e.Spans[0].Length = length
	}
	if e.Op != OpLaunch {
		e.Pattern = rapid.Uint32().Draw(t, "pattern")
		return e
	}
	e.Pipeline, e.Grid = PipelineID(rapid.Uint32().Draw(t, "pipeline")), drawDim(t, program.MaxGrid)
	e.Rounds, e.Push = rapid.Uint32().Draw(t, "rounds"), drawBytes(t, MaxPush-4)
	for range spans {
		e.Access = append(e.Access, program.Access(rapid.IntRange(1, 3).Draw(t, "access")))
	}
	return e
}

func drawOrder(t *rapid.T) *Order {
	o := &Order{Kind: Kind(rapid.IntRange(1, int(numKinds)-1).Draw(t, "kind")), Seq: rapid.Uint32().Draw(t, "seq")}
	if o.Kind != Hello && o.Kind != Resume && o.Kind != Stop && o.Kind != RunOnce {
		o.ID = rapid.Uint32().Draw(t, "id")
	}
	switch o.Kind {
	case Import, Alloc:
		o.Bytes = rapid.Uint64().Draw(t, "bytes")
	case Compile:
		o.Pipeline = &Pipeline{
			Module: drawBytes(t, 100), Entry: string(drawBytes(t, MaxEntryName)), Bindings: rapid.Uint32Range(0, MaxBindings).Draw(t, "bindings"),
			PushBytes: rapid.Uint32Range(4, MaxPush).Draw(t, "push"), SharedBytes: rapid.Uint32Range(0, program.MaxSharedBytes).Draw(t, "shared"), Block: drawDim(t, 10),
		}
		for range rapid.IntRange(0, MaxConstants).Draw(t, "constants") {
			o.Pipeline.Constants = append(o.Pipeline.Constants, program.Constant{ID: rapid.Uint32().Draw(t, "id"), Value: rapid.Uint64().Draw(t, "value")})
		}
	case Record, RunOnce:
		for range rapid.IntRange(1, 5).Draw(t, "entries") {
			o.Entries = append(o.Entries, drawEntry(t))
		}
	}
	return o
}

// TestOrders: each order is read as it was written, and no part of one is an order.
func TestOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOrder(t)
		b := AppendOrder(nil, o)
		got, err := ParseOrder(b)
		require.NoError(t, err)
		require.Equal(t, o, got)
		_, err = ParseOrder(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")])
		require.Error(t, err)
		_, err = ParseOrder(append(b, 0))
		require.Error(t, err)
	})
}

func someDevice() *Device {
	return &Device{
		Name: "a device", Driver: "1.2", OffsetAlign: 16, SubgroupSize: 32, MaxThreadsPerBlock: 1024, MaxBlock: program.Dim3{X: 1024, Y: 1024, Z: 64},
		MaxGrid: program.Dim3{X: 65535, Y: 65535, Z: 65535}, MaxBindings: 33, MaxPushBytes: 256, MaxBindingBytes: 1 << 27, Features: []program.Feature{program.FeatureF16},
	}
}

func drawAnswer(t *rapid.T) *Answer {
	a := &Answer{Kind: Kind(rapid.IntRange(1, int(Stop)-1).Draw(t, "kind")), Seq: rapid.Uint32().Draw(t, "seq"), Text: string(drawBytes(t, MaxTextBytes))}
	if rapid.Bool().Draw(t, "failed") {
		a.Code = rapid.SampledFrom(gpuerr.Codes()).Draw(t, "code")
		a.Lost = rapid.Bool().Draw(t, "lost")
		return a
	}
	switch {
	case a.Kind == Hello:
		a.Device = someDevice()
	case a.Kind.Runs():
		a.Result = &Result{Skipped: rapid.Bool().Draw(t, "skipped")}
		if a.Result.Skipped {
			break
		}
		a.Result.DeviceTime = 77
		a.Result.Begun, a.Result.Early = rapid.Uint32Range(1, MaxEntries).Draw(t, "begun"), rapid.Bool().Draw(t, "early")
		if a.Result.Early {
			copy(a.Result.Slot[:], drawBytes(t, SlotBytes))
		}
	}
	return a
}

func TestAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAnswer(t)
		b := AppendAnswer(nil, a)
		got, err := ParseAnswer(b)
		require.NoError(t, err)
		require.Equal(t, a, got)
		_, err = ParseAnswer(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")])
		require.Error(t, err)
		_, err = ParseAnswer(append(b, 0))
		require.Error(t, err)
	})
}

func FuzzOrder(f *testing.F) {
	f.Add(AppendOrder(nil, &Order{Kind: Compile, Seq: 1, ID: 2, Pipeline: &Pipeline{Module: []byte{3, 2, 35, 7}, Entry: "main", PushBytes: 4, Block: program.Dim3{X: 64, Y: 1, Z: 1}}}))
	f.Add(AppendOrder(nil, &Order{Kind: RunOnce, Seq: 1, Entries: []Entry{
		{Op: OpLaunch, Pipeline: 1, Grid: program.Dim3{X: 1, Y: 2, Z: 3}, Spans: []Span{{1, 2, 3}}, Access: []program.Access{3}, Push: []byte{1}},
		{Op: OpCopy, Spans: []Span{{1, 0, 8}, {2, 8, 8}}},
	}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOrder(b)
		if err != nil {
			return
		}
		require.True(t, bytes.Equal(b, AppendOrder(nil, o)), "there is one way to write an order")
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(AppendAnswer(nil, &Answer{Kind: Run, Seq: 1, Result: &Result{Begun: 3, Early: true, DeviceTime: 1000}}))
	f.Add(AppendAnswer(nil, &Answer{Kind: Hello, Seq: 1, Device: someDevice()}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAnswer(b)
		if err == nil && a.Device == nil {
			require.True(t, bytes.Equal(b, AppendAnswer(nil, a)), "there is one way to write an answer")
		}
	})
}

func pair(t *testing.T) (a, b int) {
	t.Helper()
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	t.Cleanup(func() { closeAll([]int{a}) })
	return a, b
}

// TestSocket: short and long messages arrive whole, with their descriptor.
func TestSocket(t *testing.T) {
	a, b := pair(t)
	r := NewReceiver(1 << 20)
	for _, n := range []int{1, MaxDatagramBytes, MaxDatagramBytes + 1, 1 << 20} {
		want := bytes.Repeat([]byte{7}, n)
		require.NoError(t, Send(a, want, -1, unix.MSG_DONTWAIT))
		got, fd, err := r.Receive(b, unix.MSG_DONTWAIT)
		require.NoError(t, err)
		require.Negative(t, fd)
		require.True(t, bytes.Equal(want, got), "%d bytes", n)
	}

	require.NoError(t, Send(a, []byte{1}, a, 0))
	_, fd, err := r.Receive(b, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, fd, 0)
	closeAll([]int{fd})

	_, _, err = r.Receive(b, unix.MSG_DONTWAIT)
	require.ErrorIs(t, err, unix.EAGAIN)
	require.NoError(t, Send(a, make([]byte, 1<<20+1), -1, 0))
	_, _, err = r.Receive(b, 0)
	require.Error(t, err, "too long")
	require.NoError(t, unix.Sendmsg(a, []byte{longMark, 0, 0, 1, 0}, nil, nil, 0))
	_, _, err = r.Receive(b, 0)
	require.Error(t, err, "no memory came")
	require.NoError(t, unix.Sendmsg(a, []byte{1}, unix.UnixRights(a, a), nil, 0))
	_, _, err = r.Receive(b, 0)
	require.Error(t, err, "two descriptors")
	closeAll([]int{b})
	require.Error(t, Send(a, []byte{1}, -1, 0))
	_, _, err = r.Receive(a, 0)
	require.ErrorIs(t, err, io.EOF)
}
