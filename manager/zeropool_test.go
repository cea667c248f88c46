package manager

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// zeroPoolLimits allow 32 MiB of spare memory.
func zeroPoolLimits() ledger.Limits {
	l := grantTestLimits()
	l[ledger.DeviceMemory] = 256 << 20
	return l
}

func (p *zeroPool) spares() (spares int, held uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sizes {
		spares += len(s.spares)
	}
	return spares, p.charged
}

// stay sets the time that spare memory stays after a request.
func (p *zeroPool) stay(d time.Duration) {
	p.mu.Lock()
	p.ttl = d
	p.mu.Unlock()
	p.wakeMaker()
}

func awaitSpares(t *testing.T, g *granted, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		spares, held := g.zeroPool.spares()
		return spares == n && (n > 0 || held == 0)
	}, 20*time.Second, time.Millisecond)
}

func statOf(t testing.TB, m *shm.Memory) (st unix.Stat_t) {
	t.Helper()
	require.NoError(t, unix.Fstat(m.FD(), &st))
	return st
}

func allocs(t *testing.T, g *granted, bytes uint64, n int) {
	t.Helper()
	for range n {
		d, err := g.alloc(bytes)
		require.NoError(t, err)
		require.NoError(t, g.free(d))
	}
}

// Memory that is requested again is ready: fresh, with its pages, and charged once.
func TestZeroPool(t *testing.T) {
	g := grant(t, zeroPoolLimits())
	g.zeroPool.hasRoom = func(uint64) bool { return true }
	g.zeroPool.stay(time.Hour)
	const bytes = 4 << 20
	allocs(t, g, bytes, 1)
	spares, held := g.zeroPool.spares()
	require.Zero(t, spares, "asked for once")
	require.Zero(t, held)
	allocs(t, g, bytes, 1)
	awaitSpares(t, g, 1)
	require.Zero(t, g.usage().UsedBytes, "what is spare is nobody's")
	require.EqualValues(t, (256<<20)-bytes, g.account.Available(ledger.DeviceMemory), "and is charged")

	d, err := g.alloc(bytes)
	require.NoError(t, err)
	st := statOf(t, d.memory)
	require.EqualValues(t, bytes, st.Blocks*512, "its pages are there")
	require.EqualValues(t, bytes, st.Size)
	require.Equal(t, make([]byte, bytes), d.host)
	require.EqualValues(t, bytes, g.usage().UsedBytes)
	for i := range d.host {
		d.host[i] = 0xaa
	}
	awaitSpares(t, g, 2)
	other, err := g.alloc(bytes)
	require.NoError(t, err)
	require.NotEqual(t, st.Ino, statOf(t, other.memory).Ino)
	require.Equal(t, make([]byte, bytes), other.host)
	require.EqualValues(t, 2*bytes, g.usage().UsedBytes)
	require.NoError(t, g.free(d))
	require.NoError(t, g.free(other))
	require.Zero(t, g.usage().UsedBytes)

	// Other sizes are made as usual.
	for _, bytes := range []uint64{4096, zeroPoolMinBytes - 4096, g.zeroPool.maxBytes + 4096} {
		allocs(t, g, bytes, 3)
	}
	// Spare memory that was not requested lately goes.
	g.zeroPool.stay(0)
	awaitSpares(t, g, 0)
}

// Neither spare memory nor memory in the making causes a refusal: a driver can have all of
// its limit.
func TestZeroPoolMakesRoom(t *testing.T) {
	const bytes, limit = 16 << 20, 256 << 20
	all := func(t *testing.T, g *granted) {
		d, err := g.alloc(limit)
		require.NoError(t, err)
		_, err = g.alloc(4096)
		require.ErrorIs(t, err, gpuerr.Quota)
		require.EqualValues(t, limit, g.usage().UsedBytes)
		require.NoError(t, g.free(d))
	}
	t.Run("made", func(t *testing.T) {
		g := grant(t, zeroPoolLimits())
		g.zeroPool.hasRoom = func(uint64) bool { return true }
		g.zeroPool.stay(time.Hour)
		for range 3 {
			allocs(t, g, bytes, 3)
			awaitSpares(t, g, 2)
			all(t, g)
		}
	})
	t.Run("making", func(t *testing.T) {
		g := grant(t, zeroPoolLimits())
		g.zeroPool.hasRoom = func(uint64) bool { return true }
		g.zeroPool.stay(time.Hour)
		making, goOn := make(chan struct{}, 1), make(chan struct{})
		g.zeroPool.create = func(name string, bytes uint64) (*shm.Memory, error) {
			making <- struct{}{}
			<-goOn
			return g.create(name, bytes)
		}
		allocs(t, g, bytes, 2)
		<-making
		go func() { // it continues when a request waits for it
			for {
				g.zeroPool.mu.Lock()
				waits := g.zeroPool.droppers > 0
				g.zeroPool.mu.Unlock()
				if waits {
					close(goOn)
					return
				}
				select {
				case <-t.Context().Done(): // no request waited
					close(goOn)
					return
				default:
					runtime.Gosched()
				}
			}
		}()
		all(t, g)
	})
}

// If the host is short of memory, none is made in advance.
func TestZeroPoolNeedsRoom(t *testing.T) {
	g := grant(t, zeroPoolLimits())
	asked := make(chan struct{}, 100)
	g.zeroPool.hasRoom = func(uint64) bool {
		asked <- struct{}{}
		return false
	}
	allocs(t, g, 4<<20, 3)
	<-asked
	_, held := g.zeroPool.spares()
	require.Zero(t, held)
	require.True(t, hostHasRoom(1))
	require.False(t, hostHasRoom(1<<60))
}

// Requests in any order: no memory is handed out twice, all of it is zero, and the account is
// the sum of the drivers' and the spare memory.
func TestZeroPoolAtRandom(t *testing.T) {
	g := grant(t, zeroPoolLimits())
	g.zeroPool.hasRoom = func(uint64) bool { return true }
	random := rand.New(rand.NewPCG(6, 16))
	sizes := []uint64{2 << 20, 3 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20}
	seen := map[uint64]bool{} // inodes of existing memory: the kernel may use one again
	var live []*dmaMemory
	var bytes uint64
	for range 300 {
		if len(live) > 0 && (random.IntN(2) == 0 || bytes > 100<<20) {
			i := random.IntN(len(live))
			d := live[i]
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			delete(seen, statOf(t, d.memory).Ino)
			bytes -= d.bytes
			require.NoError(t, g.free(d))
			continue
		}
		d, err := g.alloc(sizes[min(random.IntN(len(sizes)), random.IntN(len(sizes)))])
		require.NoError(t, err)
		inode := statOf(t, d.memory).Ino
		require.False(t, seen[inode])
		seen[inode] = true
		for off := 0; off < len(d.host); off += 1 << 20 {
			require.Zero(t, d.host[off])
			d.host[off] = 1
		}
		live, bytes = append(live, d), bytes+d.bytes
		require.Equal(t, bytes, g.usage().UsedBytes)
		_, held := g.zeroPool.spares()
		require.LessOrEqual(t, held, g.zeroPool.maxBytes)
	}
	for _, d := range live {
		require.NoError(t, g.free(d))
	}
	// The end of the epoch, with memory spare or in the making, leaves nothing: grant checks
	// the account.
}

// The pool of an epoch that has ended notes no requests.
func TestZeroPoolEnds(t *testing.T) {
	g := grant(t, zeroPoolLimits())
	g.zeroPool.hasRoom = func(uint64) bool { return true }
	allocs(t, g, 16<<20, 4)
	g.stop(t)
	_, held := g.zeroPool.spares()
	require.Zero(t, held)
	_, ok := g.zeroPool.take(16 << 20)
	require.False(t, ok)
	require.False(t, g.zeroPool.drop())
	g.zeroPool.close()
}

// The maker leaves the processor to others: it pauses for several times as long as others had
// it, and not at all if no other thread wants it.
func TestZeroPoolPauses(t *testing.T) {
	for _, test := range []struct{ others, rests time.Duration }{
		{0, 0}, {idleYield, 0}, {100 * time.Microsecond, 800 * time.Microsecond}, {time.Second, maxPause},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newZeroPool(ledger.New("test", ledger.NoLimits()).Root(), shm.Create)
			a.yield = func() { time.Sleep(test.others) }
			start := time.Now()
			m := a.makeZeroed(16 * zeroPiece)
			require.NotNil(t, m)
			require.Equal(t, 16*(test.others+test.rests), time.Since(start))
			require.NoError(t, m.Close())
		})
	}
}

// Spare memory that is no longer wanted is freed piece by piece, before its charge, and not
// by the one system call that closes it.
func TestZeroPoolGoesInPieces(t *testing.T) {
	a := newZeroPool(ledger.New("test", ledger.NoLimits()).Root(), shm.Create)
	a.hasRoom = func(uint64) bool { return true }
	punched := 0
	a.punch = func(m *shm.Memory, bytes uint64) error {
		require.EqualValues(t, bytes/512, blocks(t, m))
		_, held := a.spares()
		require.Equal(t, bytes, held)
		err := punchOut(m, bytes)
		require.Zero(t, blocks(t, m))
		punched++
		return err
	}
	a.mu.Lock()
	a.noteRequestLocked(zeroPoolMinBytes)
	a.mu.Unlock()
	require.True(t, a.make(zeroPoolMinBytes))
	require.True(t, a.drop())
	require.Equal(t, 1, punched)
	_, held := a.spares()
	require.Zero(t, held)
}
