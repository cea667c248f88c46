package client_test

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"math"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestExampleRuns(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	require.NoError(t, add(testContext(t), svc.Socket))
}

func TestDialSaysWhyNobodyAnswers(t *testing.T) {
	dir := t.TempDir()
	_, err := client.Dial(testContext(t), filepath.Join(dir, "nothing.sock"))
	require.ErrorIs(t, err, gpuerr.Disconnected)
	require.ErrorIs(t, err, fs.ErrNotExist)

	// A service that hangs up, and one that says nothing.
	path := filepath.Join(dir, "deaf.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan *net.UnixConn)
	go func() {
		defer close(accepted)
		for range 2 {
			if c, err := l.AcceptUnix(); err == nil {
				accepted <- c
			}
		}
	}()
	go func() { (<-accepted).Close() }()
	_, err = client.Dial(testContext(t), path)
	require.ErrorIs(t, err, gpuerr.Disconnected)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = client.Dial(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, (<-accepted).Close())
	<-accepted
}

func TestConn(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	c := svc.Dial(t)
	require.Equal(t, sessiontest.Tenant, c.Tenant())
	devices, err := c.Devices(ctx)
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.Equal(t, "mock0", devices[0].Name)
	require.Equal(t, client.Ready, devices[0].State)
	_, err = c.Open(ctx, 7)
	require.ErrorIs(t, err, gpuerr.NoDevice)

	text, err := c.Status(ctx, 0)
	require.NoError(t, err)
	var status struct{ Device string }
	require.NoError(t, json.Unmarshal(text, &status))
	require.Equal(t, "mock0", status.Device)

	st, err := c.NextState(ctx, 0, 99)
	require.NoError(t, err)
	require.Equal(t, client.State{Epoch: 1, State: client.Ready, Changed: true}, st)
	st, err = c.NextStateFor(ctx, 0, 1, 5*time.Millisecond)
	require.NoError(t, err)
	require.False(t, st.Changed)
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err = c.NextState(short, 0, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	s, err := c.Open(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	<-c.Done()
	_, err = c.Devices(ctx)
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = s.Describe(ctx)
	require.NoError(t, err, "a session does not need its Conn")
	require.NoError(t, s.Close(ctx))
}

func TestBuffer(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 5000, client.Storage)
	require.NoError(t, err)
	require.Equal(t, uint64(5000), b.Size())
	fd, off, length := b.Memory()
	require.NotEqual(t, -1, fd)
	require.Zero(t, off%4096)
	require.Equal(t, uint64(5000), length)

	n, err := b.WriteAt([]byte("hello"), 4990)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = b.WriteAt([]byte("hello"), 4998)
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Equal(t, 2, n)
	_, err = b.ReadAt(make([]byte, 1), -1)
	require.ErrorIs(t, err, gpuerr.Invalid)
	n, err = b.ReadAt(make([]byte, 10), 5000)
	require.Equal(t, io.EOF, err)
	require.Zero(t, n)
	whole, err := io.ReadAll(io.NewSectionReader(b, 0, 6000))
	require.NoError(t, err)
	require.Len(t, whole, 5000)
	require.Equal(t, "hello", string(whole[4990:4995]))
	require.Equal(t, "he", string(whole[4998:]))

	mem, err := b.Map()
	require.NoError(t, err)
	again, err := b.Map()
	require.NoError(t, err)
	require.Same(t, &mem[0], &again[0], "mapped once")
	require.Len(t, client.View[uint64](mem), 625)
	require.Len(t, client.View[float32](mem[4:11]), 1)
	require.Panics(t, func() { client.View[uint32](mem[1:]) })

	own, ownOff, ownLength, err := b.DupMemory()
	require.NoError(t, err)
	require.Equal(t, []uint64{off, length}, []uint64{ownOff, ownLength})
	require.NoError(t, b.Close(ctx))
	mem[4999] = 1 // no fault
	fd, _, _ = b.Memory()
	require.Equal(t, -1, fd)
	_, _, _, err = b.DupMemory()
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = unix.FcntlInt(uintptr(own), unix.F_GETFD, 0)
	require.NoError(t, err, "the caller's own outlives the buffer")
	require.NoError(t, unix.Close(own))
	_, err = b.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, gpuerr.Closed)
	require.NoError(t, b.Unmap())
	require.NoError(t, b.Unmap())

	// Without Map there is nothing to unmap: leakcheck would see it.
	b, err = s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	_, err = b.WriteAt([]byte{1}, 0)
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
}

func TestSubmitIsAllOrNothing(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s, other := svc.Open(t), svc.Open(t)
	f, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	foreign, err := other.CreateFence(ctx, 0)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 4, ArgBytes: 64})
	require.NoError(t, err)

	_, err = q.Submit(&client.Signal{Fence: f, Value: 1}, &client.Signal{Fence: foreign, Value: 1})
	require.ErrorIs(t, err, gpuerr.Invalid)
	var tooMany []client.Command
	for i := range 5 {
		tooMany = append(tooMany, &client.Signal{Fence: f, Value: uint64(i + 1)})
	}
	_, err = q.Submit(tooMany...)
	require.ErrorIs(t, err, gpuerr.QueueFull)
	for _, d := range []time.Duration{-1, time.Hour * 2} {
		_, err = q.Submit(&client.Fill{Deadline: d})
		require.ErrorIs(t, err, gpuerr.Invalid)
	}

	first, err := q.Submit(&client.Signal{Fence: f, Value: 10})
	require.NoError(t, err)
	require.Equal(t, uint64(1), first, "nothing was pushed before")
	end, err := f.Wait(ctx, 10)
	require.NoError(t, err)
	require.Equal(t, outcome.Success, end)
	st, err := f.State(ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(10), st.Reached)
}

func TestRefusedAndFailedCommands(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	trap, err := s.OpenProgram(ctx, "trap")
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	copies, err := s.OpenProgram(ctx, "copy")
	require.NoError(t, err)
	one, all := client.Dim3{X: 1, Y: 1, Z: 1}, client.Dim3{X: math.MaxUint32, Y: math.MaxUint32, Z: math.MaxUint32}
	for field, command := range map[string]client.Command{ // refused here, where the field can be named
		"Off, Bytes: 4 bytes at offset 4096":                 &client.Fill{Buffer: b, Off: 4096, Bytes: 4},
		"Off, Bytes: 4 bytes at 2":                           &client.Fill{Buffer: b, Off: 2, Bytes: 4},
		"Off, Bytes: 0 bytes at 0":                           &client.Fill{Buffer: b},
		"Off, Bytes: 8 bytes at offset 18446744073709551612": &client.Fill{Buffer: b, Off: math.MaxUint64 - 3, Bytes: 8},
		"Bytes: 0":                         &client.Copy{Dst: b, Src: b},
		"DstOff, Bytes: 64 bytes":          &client.Copy{Dst: b, Src: b, DstOff: 4095, Bytes: 64},
		"SrcOff, Bytes: 64 bytes":          &client.Copy{Dst: b, Src: b, SrcOff: 4095, Bytes: 64},
		"Bindings, Inline: 0 bindings":     &client.Launch{Program: trap},
		"Bindings: 8 bytes at offset 4096": &client.Launch{Program: trap, Bindings: []client.Binding{{Buffer: b, Off: 4096, Len: 8}}},
		"Grid, Block":                      &client.Launch{Program: trap, Grid: all, Block: one, Bindings: []client.Binding{{Buffer: b}}},
	} {
		_, err = q.Submit(command)
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, field)
	}
	spoiled, err := s.CreateBuffer(ctx, 4096, client.Storage) // by what is refused: nobody reads it
	require.NoError(t, err)
	_, err = q.Submit(
		&client.Launch{Program: trap, Grid: one, Block: client.Dim3{X: 2, Y: 1, Z: 1}, Bindings: []client.Binding{{Buffer: spoiled}}}, // not its workgroup
	)
	require.NoError(t, err)
	var done []client.Completion
	collect := func(all int) {
		for len(done) < all {
			var out [5]client.Completion
			n, err := q.Completions(ctx, out[:])
			require.NoError(t, err)
			done = append(done, out[:n]...)
		}
	}
	collect(1)
	_, err = q.Submit(&client.Launch{Program: copies, SharedBytes: 4, Bindings: []client.Binding{{Buffer: b}, {Buffer: spoiled}}}) // it takes none
	require.NoError(t, err)
	collect(2)
	_, err = q.Submit(
		&client.Launch{Program: trap, Bindings: []client.Binding{{Buffer: b, Len: 400}}},
		&client.Fill{Buffer: b, Bytes: 4096, Pattern: 7},
	)
	require.NoError(t, err)
	collect(4)
	require.ErrorIs(t, done[0].Err, gpuerr.LaunchLimit)
	require.Error(t, done[1].Err)
	require.NoError(t, done[2].Err)
	require.Equal(t, outcome.Failed, done[2].Outcome.Kind)
	require.Equal(t, outcome.Trap{Kind: outcome.OutOfBounds, Offset: 400}, done[2].Outcome.Trap)
	poisoned := outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Poisoned}
	require.Equal(t, poisoned, done[3].Outcome)
	for i, c := range done {
		require.Equal(t, uint64(i+1), c.Ticket)
	}

	// The poison of a session, by a trap, is known.
	for name, push := range map[string]func() error{
		"launch":       func() error { _, err := q.PushLaunch(&client.Launch{Program: trap}); return err },
		"copy":         func() error { _, err := q.PushCopy(&client.Copy{Dst: b, Src: b, SrcOff: 64, Bytes: 64}); return err },
		"fill":         func() error { _, err := q.PushFill(&client.Fill{Buffer: b, Bytes: 64}); return err },
		"open":         func() error { _, err := s.OpenProgram(ctx, "copy"); return err },
		"createBuffer": func() error { _, err := s.CreateBuffer(ctx, 4096, 0); return err },
		"load":         func() error { _, err := s.LoadProgram(ctx, []byte("a bundle")); return err },
	} {
		err := push()
		require.ErrorIs(t, err, gpuerr.Poisoned, name)
		require.ErrorContains(t, err, "outOfBounds binding=0 offset=400", name)
	}
	d, err := s.Describe(ctx)
	require.NoError(t, err)
	require.Equal(t, done[2].Outcome, d.Poisoned)
	_, err = b.ReadAt(make([]byte, 4096), 0)
	require.NoError(t, err)
	require.NoError(t, trap.Close(ctx))
	require.NoError(t, q.Close(ctx))
	require.NoError(t, s.Close(ctx))
}

func TestDeadlineAndCancel(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	spin, err := s.OpenProgram(ctx, "spin")
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	var done [1]client.Completion

	_, err = q.Submit(&client.Launch{Program: spin, Deadline: 10 * time.Millisecond})
	require.NoError(t, err)
	_, err = q.Completions(ctx, done[:])
	require.NoError(t, err)
	require.Equal(t, outcome.TimedOut, done[0].Outcome.Kind)

	_, err = q.Submit(&client.Launch{Program: spin})
	require.NoError(t, err)
	short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
	defer stop()
	_, err = q.Completions(short, done[:])
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, q.Cancel(ctx))
	_, err = q.Completions(ctx, done[:])
	require.NoError(t, err)
	require.Equal(t, outcome.Cancelled, done[0].Outcome.Kind)
}

func TestFenceWaits(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	f, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	st, err := f.WaitFor(ctx, 1, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, outcome.Pending, st.Outcome.Kind)
	short, stop := context.WithTimeout(ctx, 5*time.Millisecond)
	defer stop()
	end, err := f.Wait(short, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, outcome.Pending, end.Kind)

	// Far more waits than a session serves at once, and still it can be signalled.
	const waits = 200
	ends := make(chan outcome.Outcome, waits)
	for range waits {
		go func() {
			end, _ := f.Wait(ctx, 1)
			ends <- end
		}()
	}
	require.NoError(t, f.Signal(ctx, 1))
	for range waits {
		require.Equal(t, outcome.Success, <-ends)
	}
}

func TestAnAbandonedCreationIsUndone(t *testing.T) {
	allocating, goOn := make(chan struct{}), make(chan struct{})
	var o sessiontest.Options
	o.Fake.Hooks.Alloc = func(bytes uint64) error {
		if bytes >= 1<<24 {
			close(allocating)
			<-goOn
		}
		return nil
	}
	svc := sessiontest.Start(t, o)
	s := svc.Open(t)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		<-allocating
		cancel()
	}()
	_, err := s.CreateBuffer(ctx, 1<<24, client.Storage)
	require.ErrorIs(t, err, context.Canceled)
	close(goOn)
	require.Eventually(t, func() bool {
		sessions := svc.Device.Status("").Tenants[0].Sessions
		return sessions[0].Buffers == 0 && sessions[0].MemoryBytes == 0
	}, 10*time.Second, time.Millisecond, "a buffer is left that nobody has")
}
