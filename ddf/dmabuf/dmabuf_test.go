package dmabuf_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/dmabuf"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// owner has the memory mapped for a device.
type owner struct {
	mu      sync.Mutex
	ended   error
	refuse  error
	unmaps  int
	freed   int
	mapping func() // called while Unmap runs
}

func (o *owner) buffer(t *testing.T, pages uint64, pinned bool) *dmabuf.Buffer {
	t.Helper()
	m, err := shm.Create("test", pages*ddf.PageBytes)
	require.NoError(t, err)
	b, err := dmabuf.New(dmabuf.Spec{
		IOVA: 1 << 20, Bytes: m.Size(), Generation: 7, Memory: m, Pinned: pinned,
		Ended: func() error { return o.ended },
		Unmap: func() error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.mapping != nil {
				o.mapping()
			}
			o.unmaps++
			return o.refuse
		},
		Freed: func() { o.freed++ },
	})
	require.NoError(t, err)
	return b
}

// Free takes the memory from the device first, and what cannot be taken stays.
func TestFree(t *testing.T) {
	leakcheck.Check(t)
	o := &owner{refuse: errors.New("the domain is lost")}
	b := o.buffer(t, 2, false)
	o.mapping = func() { b.Bytes()[0] = 1 } // the mapping is there until the device has lost the memory
	require.ErrorIs(t, b.Free(), o.refuse)
	require.Len(t, b.Bytes(), 2*ddf.PageBytes)
	require.Zero(t, o.freed)
	o.refuse = nil
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := b.Free(); err != nil {
				t.Errorf("Free: %v", err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 2, o.unmaps)
	require.Equal(t, 1, o.freed)
	require.Nil(t, b.Bytes())
	require.Negative(t, b.FD())
	require.False(t, b.Use(func([]byte) { t.Error("there is nothing to use") }))
	require.ErrorIs(t, b.Scrub(0, ddf.PageBytes), gpuerr.Stale)
	require.EqualValues(t, 1<<20, b.IOVA())
	require.EqualValues(t, 7, b.Generation())
}

// Pinned memory is written over; other memory is given back to the host.
func TestScrub(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		o := &owner{}
		b := o.buffer(t, 4, pinned)
		for i := range b.Bytes() {
			b.Bytes()[i] = 9
		}
		require.NoError(t, b.Scrub(ddf.PageBytes, 2*ddf.PageBytes))
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(b.FD(), &st))
		pages := map[bool]int64{false: 2, true: 4}[pinned]
		require.Equal(t, pages, st.Blocks*512/ddf.PageBytes, "pages that are there, pinned %t", pinned)
		require.True(t, b.Use(func(host []byte) {
			for i, v := range host {
				if scrubbed := i >= ddf.PageBytes && i < 3*ddf.PageBytes; scrubbed != (v == 0) {
					t.Fatalf("pinned %t: byte %d is %d", pinned, i, v)
				}
			}
		}))
		o.ended = gpuerr.New(gpuerr.Revoked, "over")
		require.ErrorIs(t, b.Scrub(0, ddf.PageBytes), gpuerr.Revoked)
		require.EqualValues(t, 9, b.Bytes()[0], "a refused scrub has no effect")
		require.NoError(t, b.Free())
	}
}

// Memory that the host has lost under a mapping is an error, and no more.
func TestScrubOfMemoryThatIsGone(t *testing.T) {
	o := &owner{}
	b := o.buffer(t, 1, true)
	defer b.Free()
	// Another mapping in its place, of a file that is then cut.
	f, err := os.CreateTemp(t.TempDir(), "cut")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(ddf.PageBytes))
	require.NoError(t, replace(b.Bytes(), int(f.Fd())))
	require.NoError(t, b.Scrub(0, ddf.PageBytes))
	require.NoError(t, f.Truncate(0))
	require.ErrorIs(t, b.Scrub(0, ddf.PageBytes), gpuerr.IO)
}

func TestMemoryThatIsTooShort(t *testing.T) {
	leakcheck.Check(t)
	m, err := shm.Create("test", ddf.PageBytes)
	require.NoError(t, err)
	_, err = dmabuf.New(dmabuf.Spec{Bytes: 2 * ddf.PageBytes, Memory: m})
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.Negative(t, m.FD(), "it is the buffer's, also when there is none")
}
