package gpu

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/mock"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/program/library"
)

// inTheWay are the sessions that an error names.
func inTheWay(t *testing.T, err error) []uint64 {
	t.Helper()
	require.ErrorIs(t, err, gpuerr.Busy)
	var o *Blocked
	require.True(t, errors.As(err, &o), "%v", err)
	return o.Blockers()
}

// Work that does not end keeps the device from being stopped: the core names its session,
// only that session ends if the operator will not wait, and it is told why. Work behind it
// goes on.
func TestWhoIsInTheWayOfAFreeze(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t, withScript(mock.Fault{Kind: mock.FaultSlow, Job: 1, Duration: mock.Duration(time.Hour)}))
	bob, mallory := r.open("bob"), r.open("mallory")
	idle := r.open("mallory")
	weak, err := mallory.Restrict(Policy{Facet: FacetFull})
	require.NoError(t, err)
	b, m := buf(t, bob, 4096), buf(t, mallory, 4096)
	qb, qm := r.queue(bob, 16, 0), r.queue(mallory, 16, 0)
	r.queue(idle, 16, 0)
	qm.fill(m, 0, 64, 1)
	require.Eventually(t, func() bool { return atWork(r) == mallory.tenant }, 5*time.Second, time.Millisecond)
	qb.fill(b, 0, 64, 2)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	named := inTheWay(t, r.dev.Freeze(ctx))
	require.Equal(t, []uint64{mallory.id}, named)
	require.Zero(t, r.dev.Preempt(nil))
	require.Equal(t, 1, r.dev.Preempt(named))
	require.Zero(t, r.dev.Preempt(named), "it has ended")
	for _, s := range []*Session{mallory, weak} {
		require.ErrorIs(t, s.Err(), gpuerr.Revoked)
		require.ErrorContains(t, s.Err(), "reason=upgrade")
	}
	require.NoError(t, idle.Err())
	requireOK(t, qb.one())
	d, _ := r.handOver(t, pool)
	require.Len(t, d.sessionList(), 2)
	qb.fill(b, 0, 64, 3)
	requireOK(t, qb.one())
}

// One tenant with more than can be told, or loaded again in time, is named; the others,
// which have some as well, are not.
func TestWhoIsInTheWayOfAnExport(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t)
	load := func(s *Session, took time.Duration) {
		bundle, _ := library.Bundle("fill_u32")
		in := buf(t, s, uint64(len(bundle)))
		copy(host(t, s, in), bundle)
		h, _, err := s.LoadProgram(t.Context(), in, 0, uint64(len(bundle)))
		require.NoError(t, err)
		p, err := handles.Lookup[program](s.handles, h)
		require.NoError(t, err)
		require.Positive(t, p.took)
		p.took = took
	}
	bob, mallory, also := r.open("bob"), r.open("mallory"), r.open("mallory")
	load(bob, maxReload/2)
	load(mallory, maxReload/3)
	load(also, maxReload/3)
	require.NoError(t, r.dev.Freeze(t.Context()))
	_, _, err := r.dev.Snapshot()
	named := inTheWay(t, err)
	require.ElementsMatch(t, []uint64{mallory.id, also.id}, named)
	r.dev.Thaw()
	require.Equal(t, 2, r.dev.Preempt(named))
	require.NoError(t, r.dev.Reclaimed(t.Context()))
	r.handOver(t, pool)

	w := weighed{most: 10}
	w.add(bob, 6)
	require.Nil(t, w.heaviest())
	w.add(mallory, 4)
	require.Nil(t, w.heaviest())
	w.add(also, 3)
	require.Equal(t, []*Session{mallory, also}, w.heaviest())
}

// A process that has nearly all the descriptors that it may have tells of its rings one
// after the other; one that has all says so, and everything goes on.
func TestExportWithFewDescriptors(t *testing.T) {
	leakcheck.Check(t)
	r, _ := newMovableRig(t)
	s := r.open("alice")
	b := buf(t, s, 4096)
	var queues []*client
	for range 8 {
		queues = append(queues, r.queue(s, 16, 0))
	}
	require.NoError(t, r.dev.Freeze(t.Context()))
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	zero, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer zero.Close()
	var taken []int
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(zero.Fd()) + 200, Max: before.Max}))
	for {
		fd, err := unix.FcntlInt(zero.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	give := func(n int) {
		closeAll(taken[:n])
		taken = taken[n:]
	}
	defer func() {
		give(len(taken))
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	}()
	_, _, err = r.dev.Snapshot()
	require.ErrorIs(t, err, gpuerr.IO)
	give(3)
	_, rings, err := r.dev.Snapshot()
	require.NoError(t, err)
	require.Len(t, rings, 8)
	for _, ring := range rings {
		fds, err := ring.Dup()
		require.NoError(t, err)
		_, err = ring.Dup()
		require.ErrorIs(t, err, gpuerr.IO)
		closeAll(fds[:])
	}
	r.dev.Thaw()
	for _, q := range queues {
		q.fill(b, 0, 64, 1)
		requireOK(t, q.one())
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// atWork is the tenant with the work that the device has had for the longest.
func atWork(r *rig) (t *tenant) {
	r.dev.reactor.mail.call(func() { t = r.dev.reactor.atWork() })
	return t
}
