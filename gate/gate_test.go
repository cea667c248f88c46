package gate

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ledger"
	"capgpu/schema"
)

func putFloats(b []byte, f func(i int) float32) {
	for i := range len(b) / 4 {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f(i)))
	}
}

func TestVecadd(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	const n = 4096
	bufA, a := r.buffer(s, 4*n)
	bufB, b := r.buffer(s, 4*n)
	bufC, c := r.buffer(s, 4*n)
	memA, memB, memC := r.mapped(bufA), r.mapped(bufB), r.mapped(bufC)
	putFloats(memA, func(i int) float32 { return float32(i) })
	putFloats(memB, func(i int) float32 { return 0.5 })
	fence, _ := r.fence(s)

	poll, release := fence.Poll(r.ctx, nil)
	status, err := await(r, poll, release).Status()
	require.NoError(t, err)
	require.Equal(t, "idle", status)

	launch, release := s.LaunchKernel(r.ctx, kernel{"vecadd_f32", n / 256, 256, []uint32{a, b, c}, fence}.params)
	await(r, launch, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(t, await(r, wait, release).Ok())
	for i := range n {
		got := math.Float32frombits(binary.LittleEndian.Uint32(memC[4*i:]))
		require.Equal(t, float32(i)+0.5, got)
	}

	poll, release = fence.Poll(r.ctx, nil)
	polled := await(r, poll, release)
	status, err = polled.Status()
	require.NoError(t, err)
	require.Equal(t, "ok", status)
	require.Equal(t, uint64(1), polled.Value())

	// The same bytes by read, and back by write.
	read, release := bufC.Read(r.ctx, func(p schema.GpuBuffer_read_Params) error { p.SetOffset(4); p.SetLength(8); return nil })
	data, err := await(r, read, release).Data()
	require.NoError(t, err)
	require.Equal(t, memC[4:12], data)
	write, release := bufC.Write(r.ctx, func(p schema.GpuBuffer_write_Params) error { p.SetOffset(1); return p.SetData([]byte("xyz")) })
	await(r, write, release)
	require.Equal(t, "xyz", string(memC[1:4]))
}

func TestRunProgramPipelined(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	opened, release := r.manager.OpenDevice(r.ctx, nil)
	t.Cleanup(release)
	s := opened.Session()
	src, a := r.buffer(s, 4096)
	dst, b := r.buffer(s, 4096)
	copy(r.mapped(src), "hello")
	made, release := s.CreateFence(r.ctx, nil)
	t.Cleanup(release)
	fence := made.Fence()
	program, release := s.OpenProgram(r.ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName("copy") })
	t.Cleanup(release)
	promised := program.Program()
	ran, release := s.RunProgram(r.ctx, func(p schema.GpuProgramSession_runProgram_Params) error {
		list, err := p.NewBindings(2)
		if err != nil {
			return err
		}
		list.At(0).SetBuffer(a)
		list.At(1).SetBuffer(b)
		if err := p.SetFence(fence.AddRef()); err != nil {
			return err
		}
		return p.SetProgram(promised.AddRef())
	})
	await(r, ran, release)
	wait, release := fence.Wait(r.ctx, waitFor(10*time.Second))
	require.True(t, await(r, wait, release).Ok())
	require.Equal(t, "hello", string(r.mapped(dst)[:5]))
	info, release := promised.Info(r.ctx, nil)
	got, err := await(r, info, release).Info()
	require.NoError(t, err)
	name, err := got.Name()
	require.NoError(t, err)
	require.Equal(t, "copy", name)
}

func TestDevicesAndDescription(t *testing.T) {
	r := newRig(t, sessiontest.Options{Mock: mock.Options{Workers: 3}})
	list, release := r.manager.ListDevices(r.ctx, nil)
	devices, err := await(r, list, release).Devices()
	require.NoError(t, err)
	require.Equal(t, 1, devices.Len())
	require.Equal(t, schema.DeviceState_ready, devices.At(0).State())
	s := r.open()
	described, release := s.Describe(r.ctx, nil)
	d, err := await(r, described, release).Description()
	require.NoError(t, err)
	require.Equal(t, schema.SessionFacet_full, d.Facet())
	require.NotZero(t, d.MaxBufferBytes())
	require.NotZero(t, d.HangBoundNanos())
	require.EqualValues(t, 8, d.GlobalMemAlignment())
	require.EqualValues(t, 3, d.ComputeUnits())
	require.True(t, d.Deterministic())
	names, err := d.Programs()
	require.NoError(t, err)
	require.NotZero(t, names.Len())

	life, release := r.manager.Lifecycle(r.ctx, nil)
	l := await(r, life, release).Lifecycle()
	next, release := l.Next(r.ctx, func(p schema.Lifecycle_next_Params) error { p.SetEpoch(1 << 40); p.SetTimeoutNanos(1); return nil })
	st := await(r, next, release)
	require.True(t, st.Changed())
	require.Equal(t, schema.DeviceState_ready, st.State())
	epoch := st.Epoch()
	next, release = l.Next(r.ctx, func(p schema.Lifecycle_next_Params) error { p.SetEpoch(epoch); p.SetTimeoutNanos(1e6); return nil })
	require.False(t, await(r, next, release).Changed())

	missing, release := r.manager.OpenDevice(r.ctx, func(p schema.GpuDeviceManager_openDevice_Params) error { p.SetCapabilityIndex(7); return nil })
	refused(r, gpuerr.NoDevice, missing, release)
	none, release := r.manager.Lifecycle(r.ctx, func(p schema.GpuDeviceManager_lifecycle_Params) error { p.SetCapabilityIndex(7); return nil })
	refused(r, gpuerr.NoDevice, none, release)
}

func TestFacets(t *testing.T) {
	for _, facet := range []gpu.Facet{gpu.FacetMemory, gpu.FacetProgram, gpu.FacetFull} {
		r := newRig(t, sessiontest.Options{Attach: func(a *gpu.Attach) { a.Facet = facet }})
		s := r.open()
		fence, release := s.CreateFence(r.ctx, nil)
		await(r, fence, release)
		program, release := s.OpenProgram(r.ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName("copy") })
		if facet >= gpu.FacetProgram {
			await(r, program, release)
		} else {
			refused(r, gpuerr.Unimplemented, program, release)
		}

		queue, release := s.CreateQueue(r.ctx, nil)
		launch, release2 := s.LaunchKernel(r.ctx, kernel{program: "spin", grid: 1}.params)
		if facet == gpu.FacetFull {
			await(r, queue, release)
			refused(r, gpuerr.Invalid, launch, release2) // block: 0
		} else {
			refused(r, gpuerr.Unimplemented, queue, release)
			refused(r, gpuerr.Unimplemented, launch, release2)
		}
	}
}

func TestRestrict(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	restrict := func(on schema.GpuSession, facet schema.SessionFacet, resource string, amount uint64) (schema.GpuMemorySession_restrict_Results_Future, capnp.ReleaseFunc) {
		return on.Restrict(r.ctx, func(p schema.GpuMemorySession_restrict_Params) error {
			policy, err := p.NewPolicy()
			if err != nil {
				return err
			}
			policy.SetFacet(facet)
			limits, err := policy.NewLimits(1)
			if err != nil {
				return err
			}
			limits.At(0).SetAmount(amount)
			return limits.At(0).SetResource(resource)
		})
	}

	made, release := restrict(s, schema.SessionFacet_memory, "deviceMemory", 8192)
	weak := schema.GpuSession(await(r, made, release).Session())
	launch, release := weak.LaunchKernel(r.ctx, kernel{program: "copy"}.params)
	refused(r, gpuerr.Unimplemented, launch, release)
	_, id := r.buffer(weak, 8192)
	more, release := weak.CreateBuffer(r.ctx, bytesOf(1, ""))
	require.Contains(t, refused(r, gpuerr.Quota, more, release), "E_QUOTA deviceMemory asked=4096 available=0")

	// An id of one session means nothing in the other.
	foreign, release := s.DestroyBuffer(r.ctx, func(p schema.GpuMemorySession_destroyBuffer_Params) error { p.SetBuffer(id); return nil })
	refused(r, gpuerr.Stale, foreign, release)
	up, release := restrict(weak, schema.SessionFacet_full, "deviceMemory", 1)
	refused(r, gpuerr.Denied, up, release)
	unknown, release := restrict(s, schema.SessionFacet_memory, "unicorns", 1)
	refused(r, gpuerr.Invalid, unknown, release)

	closed, release := s.Close(r.ctx, nil)
	await(r, closed, release)
	require.Eventually(t, func() bool {
		f, release := weak.Budget(r.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err != nil
	}, patience, time.Millisecond)
	gone, release := weak.Budget(r.ctx, nil)
	require.Error(t, func() error { defer release(); _, err := gone.Struct(); return err }())
}

func TestCloseEndsEverything(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s, other := r.open(), r.open()
	buf, id := r.buffer(s, 4096)
	fence, _ := r.fence(s)
	survivor, _ := r.buffer(other, 4096)
	waiting, releaseWaiting := fence.Wait(r.ctx, waitFor(time.Hour))
	for range 2 {
		closed, release := s.Close(r.ctx, nil)
		await(r, closed, release)
	}

	// The wait ends either with the outcome or with the capability.
	if res, err := waiting.Struct(); err == nil {
		o, err := res.Outcome()
		require.NoError(t, err)
		require.False(t, res.Ok())
		require.Equal(t, schema.OutcomeKind_revoked, o.Kind())
	} else {
		require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Closed)
	}

	releaseWaiting()
	size, release := buf.Size(r.ctx, nil)
	refused(r, gpuerr.Closed, size, release)
	destroy, release := s.DestroyBuffer(r.ctx, func(p schema.GpuMemorySession_destroyBuffer_Params) error { p.SetBuffer(id); return nil })
	refused(r, gpuerr.Closed, destroy, release)
	size, release = survivor.Size(r.ctx, nil)
	await(r, size, release)
}

// A capability that the client drops is closed, and its charges come back.
func TestDroppedCapabilitiesAreClosed(t *testing.T) {
	r := newRig(t, sessiontest.Options{Attach: func(a *gpu.Attach) {
		a.TenantLimits[ledger.Sessions] = 2
		a.Limits[ledger.Buffers] = 1
	}})

	f, release := r.manager.OpenDevice(r.ctx, nil)
	res, err := f.Struct()
	require.NoError(t, err)
	s := res.Session().AddRef()
	release()
	for range 5 {
		require.Eventually(t, func() bool {
			f, release := s.CreateBuffer(r.ctx, bytesOf(1, ""))
			defer release()
			_, err := f.Struct()
			return err == nil
		}, patience, 10*time.Millisecond)
	}

	s.Release()
	for range 5 {
		require.Eventually(t, func() bool {
			f, release := r.manager.OpenDevice(r.ctx, nil)
			defer release()
			_, err := f.Struct()
			return err == nil
		}, patience, 10*time.Millisecond)
	}
}

// A session lives while any object made from it is held.
func TestSessionLivesWithItsObjects(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	opened, release := r.manager.OpenDevice(r.ctx, nil)
	made, release2 := opened.Session().CreateBuffer(r.ctx, bytesOf(4096, "upload readback"))
	res, err := made.Struct()
	require.NoError(t, err)
	buf := res.Buffer().AddRef()
	t.Cleanup(buf.Release)
	release2()
	release()
	list, release3 := r.manager.ListDevices(r.ctx, nil) // behind the releases, on the same stream
	await(r, list, release3)
	size, release := buf.Size(r.ctx, nil)
	require.Equal(t, uint64(4096), await(r, size, release).Bytes())
}

func TestDriverDeath(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	buf, _ := r.buffer(s, 4096)
	fence, _ := r.fence(s)
	waiting, releaseWaiting := fence.Wait(r.ctx, waitFor(time.Hour))
	r.service.KillDriver()
	refused(r, gpuerr.Disconnected, waiting, releaseWaiting)
	require.Eventually(t, func() bool {
		f, release := buf.Size(r.ctx, nil)
		defer release()
		_, err := f.Struct()
		return err != nil
	}, patience, time.Millisecond)
	size, release := buf.Size(r.ctx, nil)
	refused(r, gpuerr.Disconnected, size, release)
	closed, release := s.Close(r.ctx, nil)
	refused(r, gpuerr.Disconnected, closed, release)
	list, release := r.manager.ListDevices(r.ctx, nil)
	await(r, list, release)
}

func TestClientVanishes(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	r.buffer(s, 1<<20)
	fence, _ := r.fence(s)
	_, release := fence.Wait(r.ctx, waitFor(time.Hour))
	t.Cleanup(release)
	r.conn.Close()
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Fatal("the gate lives on without its client")
	}
	r.ended <- nil
	require.Eventually(t, func() bool { return r.service.Device.Check() == nil }, patience, time.Millisecond)
}
