package gpu

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/program/library"
	"capgpu/ring"
)

// plainStatus leaves out what time alone changes, and peaks, which begin anew.
func plainStatus(s Status) Status {
	s.UptimeNanos = 0
	for i := range s.Tenants {
		t := &s.Tenants[i]
		for k := range t.Budget {
			t.Budget[k].Peak = 0
		}
		var used []BudgetStatus
		for _, b := range t.Budget {
			if b.Used+b.Reserved > 0 || b.Limit != ledger.Unlimited {
				used = append(used, b)
			}
		}
		t.Budget = used
		if t.BannedUntil != nil {
			t.BannedUntil = &time.Time{}
		}
		for k := range t.Sessions {
			t.Sessions[k].AgeNanos = 0
		}
	}
	return s
}

func sessionOf(t *testing.T, d *Device, id uint64) *Session {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Contains(t, d.sessions, id)
	return d.sessions[id]
}

// executions is how many jobs a device has run.
func executions(d *mock.Device) int {
	all, _ := d.Log()
	return len(all)
}

// Everything that clients have goes on in another device: the same rings, the same handles, the same
// bytes, fences that nobody has signalled, entries that nobody has taken, a list, a
// program that was loaded, a restricted session. No job runs twice.
func TestHandOver(t *testing.T) {
	leakcheck.Check(t)
	firstLog, err := mock.New(mock.Options{LogEntries: 1024})
	require.NoError(t, err)
	r, pool := newMovableRig(t, withBackend(firstLog))
	alice := r.open("alice", func(a *Attach) { a.Limits[ledger.Buffers] = 10; a.ID = 7 })
	bob := r.open("bob", func(a *Attach) { a.Weight = 3 })
	weak, err := alice.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits(), MaxDeadline: time.Second})
	require.NoError(t, err)

	small, large, gone := buf(t, alice, 4096), buf(t, alice, 3<<20), buf(t, alice, 8192)
	require.NoError(t, alice.DestroyBuffer(gone))
	copy(host(t, alice, small), "what alice wrote")
	copy(host(t, alice, large)[2<<20:], "and here")
	bobs := buf(t, bob, 4096)
	weaks := buf(t, weak, 4096)
	open := newFence(t, alice, 5)
	bundle, there := library.Bundle("vecadd_f32")
	require.True(t, there)
	in := buf(t, alice, uint64(len(bundle)))
	copy(host(t, alice, in), bundle)
	loaded, info, err := alice.LoadProgram(t.Context(), in, 0, uint64(len(bundle)))
	require.NoError(t, err)
	opened, _, err := alice.OpenProgram(fmt.Sprintf("sha256:%x", info.Digest))
	require.NoError(t, err)
	builtin := prog(t, alice, "vecadd_f32")
	var rec recorder
	rec.fill(small, 1024, 64, 0x42424242)
	list := rec.record(t, alice)
	var doomed recorder
	victim := buf(t, alice, 4096)
	doomed.fill(victim, 0, 64, 1)
	dead := doomed.record(t, alice)
	require.NoError(t, alice.DestroyBuffer(victim))

	q := r.queue(alice, 16, 4096)
	held := r.queue(alice, 64, 4096)
	idle := r.queue(bob, 16, 4096)
	weakQueue := r.queue(weak, 16, 4096)
	q.fill(small, 512, 64, 0x11111111)
	requireOK(t, q.one())
	held.wait(open, 7)
	for range 10 {
		held.fill(small, 2048, 64, 0x22222222)
	}
	require.Eventually(t, func() bool { return alice.Budget()[ledger.InFlight].Used+alice.Budget()[ledger.InFlight].Reserved == 1 }, 5*time.Second, time.Millisecond)
	q.signal(open, 6)
	before := q.one()
	requireOK(t, before)

	d, second := r.handOver(t, pool)
	// The client's rings go on, and what was there is there.
	a2, b2, w2 := sessionOf(t, d, alice.id), sessionOf(t, d, bob.id), sessionOf(t, d, weak.id)
	require.Equal(t, "what alice wrote", string(host(t, a2, small)[:16]))
	require.EqualValues(t, 0x11, host(t, a2, small)[512])
	require.Equal(t, "and here", string(host(t, a2, large)[2<<20:2<<20+8]))
	_, err = handles.Lookup[buffer](a2.handles, gone)
	require.ErrorIs(t, err, gpuerr.Stale)
	require.Same(t, a2, w2.parent)
	q.fill(large, 0, 64, 0x33333333)
	requireOK(t, q.one())
	require.EqualValues(t, 0x33, host(t, a2, large)[0])
	q.replay(list)
	requireOK(t, q.one())
	require.EqualValues(t, 0x42, host(t, a2, small)[1024])
	q.signal(newFence(t, a2, 0), 1)
	after := q.one()
	requireOK(t, after)
	require.Greater(t, after.DeviceNanos, before.DeviceNanos, "the successor's clock goes on")
	require.LessOrEqual(t, after.DeviceNanos, uint64(d.age()))
	idle.fill(bobs, 0, 64, 0x44444444)
	requireOK(t, idle.one())
	require.EqualValues(t, 0x44, host(t, b2, bobs)[0])
	weakQueue.fill(weaks, 0, 64, 0x55555555)
	requireOK(t, weakQueue.one())
	sum := buf(t, a2, 4096)
	q.launch(builtin, whole(small), whole(small), whole(sum))
	requireOK(t, q.one())
	for _, h := range []Handle{loaded, opened} {
		p, err := handles.Lookup[program](a2.handles, h)
		require.NoError(t, err)
		require.Equal(t, info.Digest, p.info.Digest)
	}
	// The fence goes on from where it was, and the wait of before ends now, once.
	require.Zero(t, host(t, a2, small)[2048])
	st, err := a2.FenceState(open)
	require.NoError(t, err)
	require.EqualValues(t, 6, st.Reached)
	q.signal(open, 7)
	requireOK(t, q.one())
	requireOK(t, held.take(11)...)
	require.EqualValues(t, 0x22, host(t, a2, small)[2048])
	require.Equal(t, 1, executions(firstLog), "of the one fill before")
	require.Equal(t, 1+1+1+1+1+10, executions(second))
	q.replay(dead)
	require.Equal(t, gpuerr.Stale, q.one().Code)
	// New handles are no old ones, limits hold.
	fresh := buf(t, a2, 4096)
	require.NotEqual(t, gone, fresh)
	require.NotEqual(t, small, fresh)
	require.NoError(t, a2.DestroyBuffer(large))
	require.NoError(t, a2.Close())
	require.NoError(t, d.Reclaimed(t.Context()))
	require.ErrorIs(t, w2.Err(), gpuerr.Closed)
	requireOK(t, func() ring.Completion { idle.fill(bobs, 64, 64, 1); return idle.one() }())
}

// A freeze that cannot be had, and a snapshot that nobody takes, change nothing.
func TestThawGoesOn(t *testing.T) {
	leakcheck.Check(t)
	begun, gate := make(chan struct{}), make(chan struct{})
	device := newDoer()
	device.slow = true
	device.before = func(j *backend.Job) {
		if j.Pattern == 2 {
			close(begun)
			<-gate
		}
	}
	r, _ := newMovableRig(t, withBackend(device))
	s := r.open("alice")
	b := buf(t, s, 4096)
	q := r.queue(s, 16, 4096)
	q.fill(b, 0, 64, 1)
	requireOK(t, q.one())
	q.fill(b, 0, 64, 2)
	<-begun
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	require.ErrorIs(t, r.dev.Freeze(ctx), gpuerr.Busy)
	close(gate)
	requireOK(t, q.one())
	_, fds := told(t, r)
	for _, fd := range fds {
		unix.Close(fd)
	}
	require.True(t, r.dev.Frozen())
	require.ErrorIs(t, r.dev.Freeze(t.Context()), gpuerr.Busy)
	q.fill(b, 0, 64, 3)
	time.Sleep(20 * time.Millisecond)
	require.EqualValues(t, 2, host(t, s, b)[0], "nothing is begun")
	r.dev.Thaw()
	requireOK(t, q.one())
	require.EqualValues(t, 3, host(t, s, b)[0])
	require.Equal(t, outcome.Outcome{}, s.Poisoned())
}

// A state of another version is refused, and both are named.
func TestImportOfAnotherVersion(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t)
	r.open("alice")
	img, fds := told(t, r)
	img.Version++
	d, _ := successor(t, r, pool)
	err := d.Restore(t.Context(), img, fds, pool.take)
	require.ErrorIs(t, err, gpuerr.Version)
	require.ErrorContains(t, err, fmt.Sprintf("have=%d want=%d", SnapshotVersion, SnapshotVersion+1))
	require.NoError(t, d.Close(t.Context()))
	r.dev.Thaw()
}

// A state that does not agree with itself or with the memory that was lent is refused.
func TestImportRefuses(t *testing.T) {
	leakcheck.Check(t)
	for name, spoil := range map[string]func(*Snapshot){
		"device":     func(i *Snapshot) { i.Device = "another" },
		"epoch":      func(i *Snapshot) { i.Epoch++ },
		"memory":     func(i *Snapshot) { i.Sessions[0].Chunks[0].IOVA += 4096 },
		"generation": func(i *Snapshot) { i.Sessions[0].Chunks[0].Generation++ },
		"overlap":    func(i *Snapshot) { b := i.Sessions[0].Buffers; b[1].Memory.Off = b[0].Memory.Off },
		"beyond":     func(i *Snapshot) { i.Sessions[0].Buffers[0].Memory.Off = 1 << 40 },
		"heap":       func(i *Snapshot) { i.Sessions[0].Buffers[0].Usage |= UsageDevice },
		"handle":     func(i *Snapshot) { i.Sessions[0].Buffers[0].Handle++ },
		"twice":      func(i *Snapshot) { b := i.Sessions[0].Buffers; b[1].Handle = b[0].Handle },
		"fence":      func(i *Snapshot) { i.Sessions[0].Fences[0].Reached = 99 },
		"ring":       func(i *Snapshot) { i.Sessions[0].Queues[0].Ring.Completed = 99 },
		"entries":    func(i *Snapshot) { i.Sessions[0].Queues[0].Ring.Entries = 1 << 16 },
		"untold":     func(i *Snapshot) { i.Sessions[0].Queues[0].Ring.Taken++ },
		"left": func(i *Snapshot) {
			q := &i.Sessions[0].Queues[0]
			q.Left = append(q.Left, TakenSnapshot{}) // a nop that was not taken
		},
		"session": func(i *Snapshot) { i.Sessions[0].Parent = 44 },
		"tenant":  func(i *Snapshot) { i.Sessions[0].Tenant = "mallory" },
		"queues":  func(i *Snapshot) { i.Sessions[0].Queues = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r, pool := newMovableRig(t)
			s := r.open("alice")
			buf(t, s, 4096)
			buf(t, s, 4096)
			newFence(t, s, 1)
			q := r.queue(s, 16, 4096)
			b := buf(t, s, 4096)
			img, fds := told(t, r)
			spoil(img)
			d, _ := successor(t, r, pool)
			require.Error(t, d.Restore(t.Context(), img, fds, pool.show))
			_ = d.Close(t.Context())
			r.dev.Thaw()
			q.fill(b, 0, 64, 3)
			requireOK(t, q.one())
		})
	}
}

// Guilt goes along: a session that is poisoned stays so, a tenant that is banned stays
// banned until then, a branch for good, and a checked session is checked.
func TestHandOverOfTheGuilty(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t)
	alice, bob := r.open("alice"), r.open("bob")
	weak, err := bob.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits(), Check: true})
	require.NoError(t, err)
	b := buf(t, alice, 4096)
	q := r.queue(alice, 16, 4096)
	q.launch(prog(t, alice, "trap"), whole(b))
	trapped := q.one()
	require.Equal(t, outcome.TrapCause, trapped.Outcome.Cause)
	for range DefaultStrikeLimit {
		r.dev.strike(weak, "deadline missed", "")
	}
	until := time.Now().Add(time.Hour)
	bob.tenant.bannedUntil.Store(&until)

	d, _ := r.handOver(t, pool)
	a2, w2 := sessionOf(t, d, alice.id), sessionOf(t, d, weak.id)
	require.Equal(t, trapped.Outcome, a2.Poisoned())
	q.fill(b, 0, 64, 1)
	require.Equal(t, poisonedOutcome, q.one().Outcome)
	_, err = a2.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.Poisoned)
	require.True(t, w2.Describe().Checked)
	require.ErrorIs(t, w2.banned(), gpuerr.Banned)
	require.True(t, w2.branch.banned.Load())
	require.InDelta(t, time.Hour, time.Until(*w2.tenant.bannedUntil.Load()), float64(time.Minute))
	_, err = d.OpenSession(Attach{Tenant: "bob", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Banned)
}

// Work that depends on failed work does so in another device, too, and nothing else does:
// one failed job and a wait keep nobody from going on there.
func TestHandOverOfWhatDepends(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t, failFills(mock.FaultErrorCompletion))
	s := r.open("alice")
	x, y := buf(t, s, 4096), buf(t, s, 4096)
	open := newFence(t, s, 0)
	a, held := r.queue(s, 16, 0), r.queue(s, 16, 0)
	held.wait(open, 1)
	held.copies(y, x)
	a.fill(x, 0, 64, failing)
	require.Equal(t, errorOutcome, a.one().Outcome)

	img, fds := told(t, r)
	for _, fd := range fds {
		unix.Close(fd)
	}
	var doomed []uint64
	for _, q := range img.Sessions[0].Queues {
		doomed = append(doomed, q.Doomed)
	}
	require.ElementsMatch(t, []uint64{1, 2}, doomed)
	r.dev.Thaw()
	img, fds = told(t, r)
	img.Sessions[0].Queues[0].Doomed = 1 << 40
	bad, _ := successor(t, r, pool)
	require.ErrorIs(t, bad.Restore(t.Context(), img, fds, pool.show), gpuerr.Protocol)
	_ = bad.Close(t.Context())
	r.dev.Thaw()

	d, _ := r.handOver(t, pool)
	s2 := sessionOf(t, d, s.id)
	require.NoError(t, s2.SignalFence(open, 1))
	requireOK(t, held.one())
	require.Equal(t, dependentOutcome, held.one().Outcome)
	held.copies(y, x)
	requireOK(t, held.one())
}
