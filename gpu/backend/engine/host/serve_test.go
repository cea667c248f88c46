package host_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/host/lanedevice"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/program"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const patience = 20 * time.Second

// core is the other side of an engine that is served in this process.
type core struct {
	t      testing.TB
	link   int
	signal int // the pipe's writing end
	in     *wire.Receiver
	seq    uint32
	done   chan error
}

// serve serves a device until the test closes the link (end).
func serve(t testing.TB, o lanedevice.Options) *core {
	t.Helper()
	link, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	c := &core{t: t, link: link, in: wire.NewReceiver(wire.MaxAnswerBytes), done: make(chan error, 1)}
	d := lanedevice.New(o)
	go func() {
		err := host.Serve(theirs, d)
		_ = d.Close() // where Serve did not
		_ = unix.Close(theirs)
		c.done <- err
	}()

	var ends [2]int
	require.NoError(t, unix.Pipe2(ends[:], unix.O_CLOEXEC))
	c.signal = ends[1]
	t.Cleanup(func() { require.NoError(t, unix.Close(c.signal)) })
	c.order(&wire.Order{Kind: wire.Hello}, ends[0])
	require.NoError(t, unix.Close(ends[0]))
	require.NotEmpty(t, c.hear().Device.Name)
	return c
}

func (c *core) order(o *wire.Order, fd int) uint32 {
	c.t.Helper()
	c.seq++
	o.Seq = c.seq
	require.NoError(c.t, wire.Send(c.link, wire.AppendOrder(nil, o), fd, 0))
	return c.seq
}

// hear is the next answer.
func (c *core) hear() *wire.Answer {
	c.t.Helper()
	b, _, err := c.in.Receive(c.link, 0)
	require.NoError(c.t, err)
	a, err := wire.ParseAnswer(b)
	require.NoError(c.t, err)
	return a
}

// call is an order that is carried out.
func (c *core) call(o *wire.Order, fd int) *wire.Answer {
	c.t.Helper()
	seq := c.order(o, fd)
	a := c.hear()
	require.Equal(c.t, seq, a.Seq)
	require.Equal(c.t, gpuerr.None, a.Code, "%v: %s", o.Kind, a.Text)
	return a
}

// end closes the link and returns how the engine ended.
func (c *core) end() error {
	c.t.Helper()
	_ = unix.Close(c.link)
	select {
	case err := <-c.done:
		return err
	case <-time.After(patience):
		require.FailNow(c.t, "the engine does not end")
		return nil
	}
}

// memory imports a page as memory 1, and returns the host's view of it.
func (c *core) memory() []byte {
	c.t.Helper()
	m, err := shm.Create("serve-test", 4096)
	require.NoError(c.t, err)
	host, err := m.Map(0, 4096, true)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, shm.Unmap(host)) })
	c.call(&wire.Order{Kind: wire.Import, ID: 1, Bytes: 4096}, m.FD())
	require.NoError(c.t, m.Close())
	return host
}

func fill(memory wire.MemoryID, off, n uint64, pattern uint32) []wire.Entry {
	return []wire.Entry{{Op: wire.OpFill, Spans: []wire.Span{{Memory: memory, Off: off, Length: n}}, Pattern: pattern}}
}

// TestServe: memory, a list that is run again and again, one that is run once.
func TestServe(t *testing.T) {
	c := serve(t, lanedevice.Options{LocalBytes: 1 << 20})
	mem := c.memory()
	c.call(&wire.Order{Kind: wire.Record, ID: 7, Entries: fill(1, 0, 64, 0x01010101)}, -1)
	for range 3 {
		clear(mem)
		require.Equal(t, uint32(1), c.call(&wire.Order{Kind: wire.Run, ID: 7}, -1).Result.Begun)
		require.Equal(t, byte(1), mem[63])
		require.Zero(t, mem[64])
	}
	c.call(&wire.Order{Kind: wire.RunOnce, Entries: fill(1, 64, 64, 0x02020202)}, -1)
	require.Equal(t, byte(2), mem[64])

	c.call(&wire.Order{Kind: wire.Alloc, ID: 2, Bytes: 4096}, -1)
	c.order(&wire.Order{Kind: wire.Alloc, ID: 3, Bytes: 1 << 30}, -1)
	require.Equal(t, gpuerr.Quota, c.hear().Code, "the order failed, and the engine lives")
	c.call(&wire.Order{Kind: wire.Free, ID: 2}, -1)
	c.call(&wire.Order{Kind: wire.FreeList, ID: 7}, -1)
	c.call(&wire.Order{Kind: wire.Free, ID: 1}, -1)
	c.order(&wire.Order{Kind: wire.Stop}, -1)
	_, err := unix.Write(c.signal, []byte{1})
	require.NoError(t, err)
	c.call(&wire.Order{Kind: wire.Resume}, -1)
	require.NoError(t, c.end())
}

// TestRules: an order that the core never gives is the end of the engine.
func TestRules(t *testing.T) {
	launch := wire.Entry{Op: wire.OpLaunch, Pipeline: 5, Grid: program.Dim3{X: 1, Y: 1, Z: 1}}
	pipeline := &wire.Pipeline{Module: []byte{1, 2, 3, 4}, Entry: "main", PushBytes: 4, Bindings: program.MaxBindings, Block: program.Dim3{X: 1, Y: 1, Z: 1}}
	for name, o := range map[string]wire.Order{
		"hello again":             {Kind: wire.Resume, ID: 1}, // with a descriptor
		"a memory twice":          {Kind: wire.Alloc, ID: 1, Bytes: 4096},
		"half a page":             {Kind: wire.Alloc, ID: 9, Bytes: 2048},
		"too much":                {Kind: wire.Alloc, ID: 9, Bytes: 1 << 60},
		"no descriptor":           {Kind: wire.Import, ID: 9, Bytes: 4096},
		"free of nothing":         {Kind: wire.Free, ID: 9},
		"free of what is in use":  {Kind: wire.Free, ID: 1},
		"no such pipeline":        {Kind: wire.FreePipeline, ID: 9},
		"no such list":            {Kind: wire.FreeList, ID: 9},
		"a run of no list":        {Kind: wire.Run, ID: 9},
		"a list twice":            {Kind: wire.Record, ID: 7, Entries: fill(1, 0, 4, 0)},
		"no such memory":          {Kind: wire.Record, ID: 8, Entries: fill(9, 0, 4, 0)},
		"beyond the memory":       {Kind: wire.RunOnce, Entries: fill(1, 4092, 8, 0)},
		"beyond all memory":       {Kind: wire.RunOnce, Entries: fill(1, 1<<63, 1<<63, 0)},
		"a program that is none":  {Kind: wire.RunOnce, Entries: []wire.Entry{launch}},
		"more than device can":    {Kind: wire.Compile, ID: 1, Pipeline: pipeline},
		"local memory where none": {Kind: wire.Alloc, ID: 9, Bytes: 8192},
	} {
		t.Run(name, func(t *testing.T) {
			local := uint64(1 << 20)
			if name == "local memory where none" {
				local = 0
			}
			c := serve(t, lanedevice.Options{LocalBytes: local})
			c.memory()
			c.call(&wire.Order{Kind: wire.Record, ID: 7, Entries: fill(1, 0, 64, 1)}, -1)
			fd := -1
			if name == "hello again" {
				o.Kind, fd = wire.Hello, c.link
			}
			c.order(&o, fd)
			select {
			case err := <-c.done:
				require.Error(t, err)
			case <-time.After(patience):
				require.FailNow(t, "the engine goes on")
			}
			require.NoError(t, unix.Close(c.link))
		})
	}
}

// TestRubbish: bytes that are no order end the engine.
func TestRubbish(t *testing.T) {
	for _, b := range [][]byte{{0}, {255}, []byte("rubbish"), make([]byte, 4096)} {
		c := serve(t, lanedevice.Options{})
		require.NoError(t, unix.Sendmsg(c.link, b, nil, nil, 0))
		require.Error(t, <-c.done)
		require.NoError(t, unix.Close(c.link))
	}
}

// TestTooManyAhead: a fifth run before the first has ended is against the rules.
func TestTooManyAhead(t *testing.T) {
	c := serve(t, lanedevice.Options{LocalBytes: 4096, Fault: lanedevice.Hang, FaultAt: 1})
	c.call(&wire.Order{Kind: wire.Alloc, ID: 1, Bytes: 4096}, -1)
	for range wire.MaxAhead + 1 {
		c.order(&wire.Order{Kind: wire.RunOnce, Entries: fill(1, 0, 4, 1)}, -1)
	}
	require.Error(t, <-c.done)
	require.NoError(t, unix.Close(c.link))
}

// TestControl: the manager hears of the self-test, and has it run again; the first order ends
// that.
func TestControl(t *testing.T) {
	if raceEnabled {
		t.Skip("a loop of 200,000 rounds, again and again")
	}
	link, theirLink, err := shm.Socketpair()
	require.NoError(t, err)
	ctl, theirControl, err := shm.Socketpair()
	require.NoError(t, err)
	done, sealed := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		done <- host.Main(theirLink, theirControl, func() (host.Device, error) { return lanedevice.New(lanedevice.Options{}), nil },
			func(host.Device) error { sealed <- struct{}{}; return nil })
	}()

	in := wire.NewReceiver(control.MaxBytes)
	hear := func() control.FromEngine {
		b, _, err := in.Receive(ctl, 0)
		require.NoError(t, err)
		m, err := control.ParseFromEngine(b)
		require.NoError(t, err)
		return m
	}
	require.NotNil(t, hear().Ready)
	require.Len(t, sealed, 1, "before it says that it is ready")
	for n := range uint64(2) {
		require.NoError(t, wire.Send(ctl, control.ToEngine{Test: &n}.Bytes(), -1, 0))
		require.Equal(t, n, *hear().Tested)
	}
	require.NoError(t, unix.Close(link))
	require.NoError(t, <-done, "the core has gone before its first order")
	for _, fd := range []int{theirLink, ctl, theirControl} {
		require.NoError(t, unix.Close(fd))
	}
}

// A device that fails its self-test is not used, and the manager hears why.
func TestSelfTestFails(t *testing.T) {
	ctl, theirControl, err := shm.Socketpair()
	require.NoError(t, err)
	d := lanedevice.New(lanedevice.Options{Fault: lanedevice.BadSlot, FaultAt: 2})
	require.ErrorContains(t, host.Main(-1, theirControl, func() (host.Device, error) { return d, nil }, nil), "self-test")
	b, _, err := wire.NewReceiver(control.MaxBytes).Receive(ctl, 0)
	require.NoError(t, err)
	m, err := control.ParseFromEngine(b)
	require.NoError(t, err)
	require.Contains(t, m.Failed, "self-test")
	require.NoError(t, d.Close())
	require.NoError(t, unix.Close(ctl))
	require.NoError(t, unix.Close(theirControl))
}

// FuzzOrders: whatever is ordered, the frame ends or goes on; it never panics.
func FuzzOrders(f *testing.F) {
	f.Add(wire.AppendOrder(nil, &wire.Order{Kind: wire.RunOnce, Seq: 9, Entries: fill(1, 0, 64, 1)}))
	f.Add(wire.AppendOrder(nil, &wire.Order{Kind: wire.Alloc, Seq: 9, ID: 2, Bytes: 4096}))
	f.Add(wire.AppendOrder(nil, &wire.Order{Kind: wire.Free, Seq: 9, ID: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > wire.MaxDatagramBytes {
			return
		}
		c := serve(t, lanedevice.Options{LocalBytes: 1 << 20})
		c.memory()
		require.NoError(t, unix.Sendmsg(c.link, b, nil, nil, 0))
		if o, err := wire.ParseOrder(b); err == nil && o.Kind != wire.Stop {
			_, _, _ = c.in.Receive(c.link, 0) // an answer, or the end
		}
		_ = c.end() // it may be a good one
	})
}
