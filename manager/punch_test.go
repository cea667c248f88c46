package manager

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// heldMemory returns a driver with a buffer full of data. Its pages cannot be punched out
// before letGo.
func heldMemory(t *testing.T) (g *granted, b ddf.DMABuffer, client []byte, letGo func()) {
	t.Helper()
	g = grant(t, grantTestLimits())
	hold := make(chan struct{})
	g.punchOut = func(m *shm.Memory, bytes uint64) error {
		<-hold
		return m.Punch(0, bytes)
	}
	b, err := dialGrants(t, g).GrantSet().DMA.Alloc(t.Context(), 2*ddf.PageBytes)
	require.NoError(t, err)
	fd, err := unix.FcntlInt(uintptr(b.FD()), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	memory, err := shm.FromFD(fd, b.Size())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, memory.Close()) })
	client, err = memory.Map(0, b.Size(), true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shm.Unmap(client)) })
	client[0], client[len(client)-1] = 1, 2
	return g, b, client, func() { close(hold) }
}

// A process that blocks a punch delays no driver, and cannot keep the data.
func TestHeldMemoryIsFreed(t *testing.T) {
	g, b, client, letGo := heldMemory(t)
	require.NoError(t, b.Free())
	require.Zero(t, client[0])
	require.Zero(t, client[len(client)-1])
	require.Empty(t, g.fake.domain.Mappings())
	require.EqualValues(t, 2*ddf.PageBytes, g.usage().UsedBytes, "its pages are not back")
	letGo()
	require.Eventually(t, func() bool { return g.usage().UsedBytes == 0 }, 10*time.Second, time.Millisecond)
}

// If a punch is blocked in the middle, the punched part is overwritten with the rest, and its
// pages are free, too, when its charge is.
func TestHeldInTheMidst(t *testing.T) {
	g, b, _, _ := heldMemory(t)
	fd, hold := -1, make(chan struct{})
	g.punchOut = func(m *shm.Memory, bytes uint64) (err error) {
		if fd >= 0 {
			return m.Punch(0, bytes)
		}
		if fd, err = unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
		if err := m.Punch(0, ddf.PageBytes); err != nil {
			return err
		}
		<-hold
		return m.Punch(ddf.PageBytes, bytes-ddf.PageBytes)
	}
	require.NoError(t, b.Free())
	require.EqualValues(t, 2*ddf.PageBytes, g.usage().UsedBytes)
	close(hold)
	require.Eventually(t, func() bool { return g.usage().UsedBytes == 0 }, 10*time.Second, time.Millisecond)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.Zero(t, st.Blocks)
	require.NoError(t, unix.Close(fd))
}

// The end of a driver does not wait for it either, and its account closes when the memory is
// free.
func TestHeldMemoryIsRevoked(t *testing.T) {
	g, b, client, letGo := heldMemory(t)
	g.stopOnce.Do(func() {})
	g.gate.Revoke(errGrantsRevoked)
	<-g.served
	r := g.revoke(false, nil)
	require.NoError(t, r.err)
	require.Equal(t, 1, r.freed)
	require.Equal(t, 1, r.held)
	require.Zero(t, client[0])
	require.ErrorContains(t, g.ledger.Root().Zero(), ledger.DeviceMemory.String())
	letGo()
	require.Eventually(t, func() bool { return g.ledger.Root().Zero() == nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, g.ledger.Check())
	require.NoError(t, b.Free())
}

// With more lingering memory, a punch is waited for less.
func TestPunchPatience(t *testing.T) {
	g := &grants{}
	total := time.Duration(0)
	for range 1000 {
		total += g.punchPatience()
		g.lent.lingering++
	}
	require.LessOrEqual(t, total, 4*punchGrace)
}

// TestHugePagesAreAskedFor: memory is of huge pages only where the policy says so.
func TestHugePagesAreAskedFor(t *testing.T) {
	const pool = "/proc/sys/vm/nr_hugepages"
	if f, err := os.Open(pool); err == nil { // package shm's tests set some aside as well
		t.Cleanup(func() { f.Close() })
		require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	}
	before, err := os.ReadFile(pool)
	if err == nil {
		err = os.WriteFile(pool, []byte("4"), 0)
	}
	if err != nil {
		t.Skipf("SKIPPED: needs root to set huge pages aside: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.WriteFile(pool, before, 0)) })
	probe, err := shm.CreateHuge("manager-test", shm.HugeBytes)
	require.NoError(t, err)
	defer probe.Close()
	if probe.Granule() != shm.HugeBytes {
		t.Skip("SKIPPED: this host has no huge pages of 2 MiB to set aside")
	}
	for _, huge := range []bool{false, true} {
		g := grant(t, grantTestLimits())
		g.hugePages.allowed = huge
		d, err := g.alloc(shm.HugeBytes)
		require.NoError(t, err)
		require.Equal(t, huge, d.memory.Granule() == shm.HugeBytes)
		require.NoError(t, g.free(d))
	}
}
