package mock

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// pageFaults is how many page faults this thread has had.
func pageFaults(t testing.TB) int64 {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &u))
	return u.Minflt
}

// freshWords are a new mapping of memory that has all its pages.
func freshWords(t testing.TB, bytes uint64) []byte {
	m, err := shm.Create("fresh", bytes)
	require.NoError(t, err)
	require.NoError(t, m.Back(0, bytes))
	b, err := m.Map(0, bytes, true)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, shm.Unmap(b))
		require.NoError(t, m.Close())
	})
	return b
}

// Memory that is filled or copied to, and was never touched, takes few faults.
func TestFewFaults(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const bytes = 4 << 20
	few := int64(bytes / shm.PageBytes / 4)
	read, before := freshWords(t, bytes), pageFaults(t)
	for i := uint64(0); i < bytes; i += shm.PageBytes {
		atomic.LoadUint32(&wordsOf(read)[i/4])
	}
	if n := pageFaults(t) - before; n >= few {
		t.Skipf("SKIPPED: this kernel maps next to nothing around a page that is read: %d faults", n)
	}
	src := make([]byte, bytes)
	for i := range src {
		src[i] = byte(i)
	}
	for _, of := range []struct {
		what string
		do   func(dst []byte)
	}{
		{"fill", func(dst []byte) {
			w := &task{move: move{words: wordsOf(dst), pattern: 7}}
			for lo := uint64(0); lo < bytes/4; lo += wordBlock {
				fillBlock(w, 0, lo, lo+wordBlock)
			}
		}},
		{"copy", func(dst []byte) {
			w := &task{move: move{dst: dst, src: src}}
			for lo := uint64(0); lo < bytes; lo += byteBlock {
				moveBlock(w, 0, lo, lo+byteBlock)
			}
		}},
	} {
		t.Run(of.what, func(t *testing.T) {
			dst := freshWords(t, bytes)
			before := pageFaults(t)
			of.do(dst)
			require.Less(t, pageFaults(t)-before, few)
		})
	}
}
