package manager

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// backed returns memory with all its pages.
func backed(t *testing.T, bytes uint64) *shm.Memory {
	t.Helper()
	m, err := shm.Create("test", bytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	require.NoError(t, m.Back(0, bytes))
	require.EqualValues(t, bytes/512, blocks(t, m))
	return m
}

// Background work runs on a thread of lower priority, which no other work gets, and never on
// the first thread of the process.
func TestBackground(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	if before.Policy != unix.SCHED_NORMAL {
		t.Skip("SKIPPED: this process is not scheduled as most are")
	}
	for range 20 { // on several threads
		var first bool
		var got, want *unix.SchedAttr
		var wg sync.WaitGroup
		wg.Go(func() {
			inBackground(func() {
				first = unix.Gettid() == unix.Getpid()
				got, _ = unix.SchedGetAttr(0, 0)
			})
		})
		wg.Wait()
		require.NotNil(t, got)
		copied := *before
		want = &copied
		if !first {
			want.Nice = min(before.Nice+reclaimNice, lastNice)
			if before.Runtime != 0 { // else this kernel reports no slice
				want.Runtime = uint64(reclaimSlice)
			}
		}
		require.Equal(t, want, got)
	}
	after, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Several threads that punch the same memory punch each piece once, and all of it.
func TestPunchingTogether(t *testing.T) {
	bytes := 9*pagesPiece + shm.PageBytes
	m := backed(t, bytes)
	p := newPunching(m, bytes)
	var pieces [4]int
	var wg sync.WaitGroup
	for i := range pieces {
		wg.Go(func() { p.run(func() { pieces[i]++ }) })
	}
	require.NoError(t, p.wait())
	wg.Wait()
	require.Zero(t, blocks(t, m))
	sum := 0
	for _, n := range pieces {
		sum += n
	}
	require.Equal(t, 10, sum)
}

// An error ends the punch for all of them.
func TestPunchingFails(t *testing.T) {
	m := backed(t, pagesPiece)
	p := newPunching(m, 100*pagesPiece) // more than the memory has
	rests := 0
	p.run(func() { rests++ })
	require.Error(t, p.wait())
	require.Equal(t, 2, rests)
	p.run(func() { t.Error("it goes on") })
}

// Memory is freed even if the background threads never get the processor: after a time, and
// at once if hurry is closed. When they get it in the end they do not touch the memory.
func TestPunchedThoughNeverScheduled(t *testing.T) {
	for _, test := range []struct {
		name   string
		before int           // pieces that are done before the threads stop getting the processor
		hurry  time.Duration // 0: never
		after  time.Duration
	}{
		{"never", 0, 0, punchYields},
		{"in the midst", 3, 0, punchYields},
		{"in a hurry", 0, time.Millisecond, time.Millisecond},
		{"in the midst and in a hurry", 3, time.Millisecond, time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const bytes = 8 * pagesPiece
				m, err := shm.Create("test", bytes)
				require.NoError(t, err)
				require.NoError(t, m.Back(0, bytes))
				hurry, scheduled := make(chan struct{}), make(chan struct{})
				if test.hurry > 0 {
					time.AfterFunc(test.hurry, func() { close(hurry) })
				}
				pieces, start := test.before, time.Now()
				err = newPunching(m, bytes).runInBackground(hurry, func(f func()) {
					if pieces == 0 {
						<-scheduled
					}
					f()
				}, func() {
					if pieces--; pieces == 0 {
						<-scheduled
					}
				})
				require.NoError(t, err)
				require.Equal(t, test.after, time.Since(start))
				require.Zero(t, blocks(t, m))
				require.NoError(t, m.Close())
				close(scheduled)
				synctest.Wait()
			})
		})
	}
}

// If they get it, the caller does nothing itself, and small memory gets no thread.
func TestPunchInBackground(t *testing.T) {
	for _, bytes := range []uint64{shm.PageBytes, reclaimMinBytes - shm.PageBytes, reclaimMinBytes, 3*pagesPiece + reclaimMinBytes} {
		m := backed(t, bytes)
		require.NoError(t, punchInBackground(m, bytes, nil))
		require.Zero(t, blocks(t, m))
	}
	hurry := make(chan struct{})
	close(hurry)
	m := backed(t, reclaimMinBytes)
	require.NoError(t, punchInBackground(m, reclaimMinBytes, hurry))
	require.Zero(t, blocks(t, m))
}

// When a driver is dead the next one waits for its memory, which is then freed in the
// foreground.
func TestDeadDriversMemoryIsInAHurry(t *testing.T) {
	g := grant(t, grantTestLimits())
	select {
	case <-g.zeroPool.closing:
		t.Fatal("the driver lives")
	default:
	}
	g.stopOnce.Do(func() {})
	g.gate.Revoke(errGrantsRevoked)
	<-g.served
	require.NoError(t, g.revoke(false, nil).err)
	<-g.zeroPool.closing
}
