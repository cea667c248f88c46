package session_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

// testContext bounds a test; nothing in these tests may take longer.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// vectors creates buffers of n floats with the given values, and one more for the
// result.
func vectors(t *testing.T, s *client.Session, n int, values ...func(i int) float32) (bindings []client.Binding, mapped [][]float32) {
	t.Helper()
	values = append(values, nil)
	for _, v := range values {
		b, err := s.CreateBuffer(testContext(t), uint64(n)*4, client.Storage)
		require.NoError(t, err)
		mem, err := client.MapAs[float32](b)
		require.NoError(t, err)
		require.Len(t, mem, n)
		t.Cleanup(func() { b.Unmap() })
		for i := range mem {
			require.Zero(t, mem[i], "memory is zero when it is handed out")
			if v != nil {
				mem[i] = v(i)
			}
		}
		bindings, mapped = append(bindings, client.Binding{Buffer: b}), append(mapped, mem)
	}

	return bindings, mapped
}

func TestVecaddThroughTheRing(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Mock: mock.Options{Workers: 3}})
	ctx := testContext(t)
	s, err := svc.Dial(t).Open(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, uint64(1), s.Epoch())

	d, err := s.Describe(ctx)
	require.NoError(t, err)
	require.Contains(t, d.Programs, "vecadd_f32")
	require.Equal(t, client.FacetFull, d.Facet)
	require.Equal(t, "mock0", d.Device.Name)
	require.Equal(t, client.Ready, d.Device.State)
	require.NotZero(t, d.HangBound)
	require.EqualValues(t, 8, d.GlobalMemAlignment)
	require.EqualValues(t, 3, d.ComputeUnits)
	require.True(t, d.Deterministic)

	const n = 100_003
	bindings, mem := vectors(t, s, n, func(i int) float32 { return float32(i) }, func(i int) float32 { return 0.5 })
	add, err := s.OpenProgram(ctx, "vecadd_f32")
	require.NoError(t, err)
	require.Len(t, add.Info().Bindings, 3)
	require.Equal(t, client.Write, add.Info().Bindings[2].Access)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	f, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)

	first, err := q.Submit(&client.Launch{Program: add, Bindings: bindings}, &client.Signal{Fence: f, Value: 1})
	require.NoError(t, err)
	require.Equal(t, uint64(1), first)
	end, err := f.Wait(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, outcome.Success, end)
	for i, v := range mem[2] {
		if v != float32(i)+0.5 {
			t.Fatalf("c[%d] = %v", i, v)
		}
	}

	var done []client.Completion
	for len(done) < 2 {
		var out [8]client.Completion
		k, err := q.Completions(ctx, out[:])
		require.NoError(t, err)
		done = append(done, out[:k]...)
	}

	require.Equal(t, uint64(1), done[0].Ticket)
	require.Equal(t, outcome.Success, done[0].Outcome)
	require.NotZero(t, done[0].DeviceTime)
	require.Zero(t, done[0].EndedAt)
	require.Equal(t, uint64(2), done[1].Ticket)
	require.Zero(t, done[1].DeviceTime)
	require.Positive(t, done[1].EndedAt)
	require.LessOrEqual(t, done[1].EndedAt, svc.Device.Status("").UptimeNanos)

	budget, err := s.Budget(ctx)
	require.NoError(t, err)
	used := map[string]uint64{}
	for _, e := range budget {
		used[e.Resource] = e.Used
	}

	require.Equal(t, uint64(3), used["buffers"])
	require.Equal(t, uint64(3*((n*4+4095)&^4095)), used["deviceMemory"])
	require.NotZero(t, used["deviceTime"])

	require.NoError(t, s.Close(ctx))
	require.NoError(t, s.Close(ctx), "closing twice is fine")
	require.ErrorIs(t, s.Err(), gpuerr.Closed)
	require.Zero(t, sessionCount(svc))
	mem[2][1] = 3 // a mapping outlives its session
}

// sessionCount is the number of sessions after closed ones are reclaimed.
func sessionCount(svc *sessiontest.Service) int {
	_ = svc.Device.Reclaimed(context.Background())
	n := 0
	for _, tenant := range svc.Device.Status("").Tenants {
		n += len(tenant.Sessions)
	}
	return n
}

func TestBadArguments(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.MaxBufferBytes = 1 << 20 }})
	ctx := testContext(t)
	s, other := svc.Open(t), svc.Open(t)

	for _, bytes := range []uint64{0, 1<<20 + 1, 1 << 62, math.MaxUint64, math.MaxUint64 - 4094} {
		_, err := s.CreateBuffer(ctx, bytes, client.Storage)
		require.ErrorIs(t, err, gpuerr.Invalid, "%d bytes", bytes)
		require.ErrorContains(t, err, "bytes")
	}
	_, err := s.CreateBuffer(ctx, 1, 16)
	require.ErrorIs(t, err, gpuerr.Invalid, "unknown usage")

	for _, o := range []client.QueueOptions{
		{Entries: 3, ArgBytes: 64}, {Entries: 1, ArgBytes: 64}, {Entries: 1 << 31, ArgBytes: 64},
		{Entries: 4, ArgBytes: 65}, {Entries: 4, ArgBytes: math.MaxUint32},
	} {
		_, err := s.CreateQueue(ctx, o)
		require.ErrorIs(t, err, gpuerr.Invalid, "%+v", o)
	}

	_, err = s.OpenProgram(ctx, "no such program")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, err = s.OpenProgram(ctx, strings.Repeat("x", 300))
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, err = s.OpenProgram(ctx, "")
	require.ErrorIs(t, err, gpuerr.NoProgram)
	_, err = s.LoadProgram(ctx, nil)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = s.LoadProgram(ctx, []byte("this is no bundle"))
	require.Error(t, err)

	f, err := s.CreateFence(ctx, 5)
	require.NoError(t, err)
	require.ErrorIs(t, f.Signal(ctx, 5), gpuerr.Invalid, "not above the promised value")
	require.NoError(t, f.Signal(ctx, 7))
	st, err := f.State(ctx)
	require.NoError(t, err)
	require.Equal(t, client.FenceState{Reached: 7, Promised: 7, Outcome: outcome.Success}, st)

	// A session's objects mean nothing in another session.
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	q, err := other.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	_, err = q.PushFill(&client.Fill{Buffer: b, Bytes: 4096})
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = q.PushSignal(f, 8)
	require.ErrorIs(t, err, gpuerr.Invalid)

	require.NoError(t, f.Close(ctx))
	require.NoError(t, f.Close(ctx))
	_, err = f.State(ctx)
	require.ErrorIs(t, err, gpuerr.Stale)
	_, err = f.Wait(ctx, 9)
	require.ErrorIs(t, err, gpuerr.Stale)
	require.NoError(t, b.Close(ctx))
	require.NoError(t, b.Close(ctx))
	_, err = b.Map()
	require.ErrorIs(t, err, gpuerr.Closed)
}

func TestQuota(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Attach: func(a *gpu.Attach) {
		a.Limits[ledger.DeviceMemory] = 3 * 4096
		a.Limits[ledger.Fences] = 1
	}})

	ctx := testContext(t)
	s := svc.Open(t)
	a, err := s.CreateBuffer(ctx, 2*4096, client.Storage)
	require.NoError(t, err)
	_, err = s.CreateBuffer(ctx, 2*4096, client.Storage)
	var refused *gpuerr.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, gpuerr.Error{Code: gpuerr.Quota, Resource: "deviceMemory", Asked: 2 * 4096, Available: 4096, Msg: refused.Msg}, *refused)
	require.NoError(t, a.Close(ctx))
	_, err = s.CreateBuffer(ctx, 3*4096, client.Storage)
	require.NoError(t, err, "a closed buffer's charge is back")

	_, err = s.CreateFence(ctx, 0)
	require.NoError(t, err)
	_, err = s.CreateFence(ctx, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
}

func TestFacets(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	full := svc.Open(t)

	memory, err := full.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
	require.NoError(t, err)
	defer memory.Close(ctx)
	_, err = memory.OpenProgram(ctx, "vecadd_f32")
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	_, err = memory.LoadProgram(ctx, []byte("x"))
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	_, err = memory.CreateFence(ctx, 0)
	require.NoError(t, err)

	program, err := full.Restrict(ctx, client.Policy{Facet: client.FacetProgram, Programs: []string{"vecadd_f32"}, Limits: map[string]uint64{"buffers": 1}})
	require.NoError(t, err)
	defer program.Close(ctx)
	_, err = program.OpenProgram(ctx, "vecadd_f32")
	require.NoError(t, err)
	_, err = program.OpenProgram(ctx, "saxpy_f32")
	require.Error(t, err, "not on its list")
	_, err = program.LoadProgram(ctx, []byte("x"))
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	_, err = program.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	_, err = program.CreateBuffer(ctx, 4096, client.Storage)
	require.ErrorIs(t, err, gpuerr.Quota)

	_, err = program.Restrict(ctx, client.Policy{Facet: client.FacetFull})
	require.ErrorIs(t, err, gpuerr.Denied, "more than its own")
	_, err = full.Restrict(ctx, client.Policy{Limits: map[string]uint64{"chocolate": 1}})
	require.ErrorIs(t, err, gpuerr.Invalid)
}

func TestCloseEndsDescendants(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	root := svc.Open(t)
	child, err := root.Restrict(ctx, client.Policy{Facet: client.FacetFull})
	require.NoError(t, err)
	defer child.Close(ctx)

	grandchild, err := child.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
	require.NoError(t, err)
	defer grandchild.Close(ctx)
	f, err := grandchild.CreateFence(ctx, 0)
	require.NoError(t, err)
	waited := make(chan error, 1)
	go func() {
		_, err := f.Wait(ctx, 1)
		waited <- err
	}()

	require.NoError(t, root.Close(ctx))
	for _, s := range []*client.Session{child, grandchild} {
		select {
		case <-s.Done():
		case <-ctx.Done():
			t.Fatal("a descendant lives on")
		}
		require.ErrorIs(t, s.Err(), gpuerr.Revoked)
		require.ErrorContains(t, s.Err(), "closed by another")
		_, err := s.CreateFence(ctx, 0)
		require.ErrorIs(t, err, gpuerr.Revoked)
	}

	<-waited
	require.Zero(t, sessionCount(svc))
}

func TestClosingAChildLeavesItsParent(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	root := svc.Open(t)
	child, err := root.Restrict(ctx, client.Policy{Facet: client.FacetFull})
	require.NoError(t, err)
	_, err = child.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	require.NoError(t, child.Close(ctx))
	_, err = root.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
}

func TestDriverDeath(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 4096, client.Storage)
	require.NoError(t, err)
	mem, err := b.Map()
	require.NoError(t, err)
	f, err := s.CreateFence(ctx, 0)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(t, err)
	ended := make(chan error, 2)
	go func() {
		_, err := q.Completions(ctx, make([]client.Completion, 1))
		ended <- err
	}()

	go func() {
		_, err := f.Wait(ctx, 1)
		ended <- err
	}()

	svc.Kill()
	for range 2 {
		if err := <-ended; err != nil {
			require.Equal(t, gpuerr.ClassDisconnected, gpuerr.CodeOf(err).Class(), "%v", err)
		}
	}

	<-s.Done()
	require.Equal(t, gpuerr.ClassDisconnected, gpuerr.CodeOf(s.Err()).Class())
	_, err = q.PushSignal(f, 1)
	require.Equal(t, s.Err(), err)
	_, err = s.CreateBuffer(ctx, 4096, client.Storage)
	require.Equal(t, s.Err(), err)
	mem[0] = 1 // no fault
	require.NoError(t, b.Unmap())
	require.NoError(t, b.Close(ctx))
	require.NoError(t, q.Close(ctx))
	require.NoError(t, f.Close(ctx))
	require.NoError(t, s.Close(ctx))
}
