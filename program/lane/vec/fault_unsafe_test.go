//go:build linux

package vec

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// broken maps two pages of a memfd. The second is then cut off, so that access to
// it is a SIGBUS, as when a client shrinks its file; or it is closed to all access,
// which then is a SIGSEGV.
func broken(t *testing.T, cut bool) []byte {
	fd, err := unix.MemfdCreate("vec", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	page := os.Getpagesize()
	require.NoError(t, unix.Ftruncate(fd, int64(2*page)))
	mem, err := unix.Mmap(fd, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	if cut {
		require.NoError(t, unix.Ftruncate(fd, int64(page)))
	} else {
		require.NoError(t, unix.Mprotect(mem[page:], unix.PROT_NONE))
	}
	return mem
}

// fault runs f and hands back the address of its fault.
func fault(f func()) (addr uintptr, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			err = fmt.Errorf("no fault")
			return
		}
		a, ok := r.(interface{ Addr() uintptr })
		if !ok {
			err = fmt.Errorf("not a fault: %v", r)
			return
		}
		addr = a.Addr()
		depth = deep(64)[0] // the stack moves: the frames below must be right for that too
	}()

	f()
	return 0, nil
}

// depth keeps deep from being left out.
var depth byte

func deep(n int) (s [256]byte) {
	if n > 0 {
		s = deep(n - 1)
	}
	return s
}

func TestMemoryGone(t *testing.T)    { both(t, func(t *testing.T) { testFaults(t, broken(t, true)) }) }
func TestMemoryGuarded(t *testing.T) { both(t, func(t *testing.T) { testFaults(t, broken(t, false)) }) }

func testFaults(t *testing.T, mem []byte) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	page := os.Getpagesize()
	for _, n := range []int{1, 7, 8, 9, 32, 33, 70} {
		for _, stride := range []int{0, 1, 3} {
			idx, dst, all := make([]uint32, n), make([]uint32, n), make([]uint32, n)
			Splat(all, ^uint32(0))
			for _, mask := range [][]uint32{nil, all} {
				for i := range idx { // the last lane is in the page that is gone
					idx[i] = uint32(page/4 + 2 - stride*(n-1-i))
				}
				addr, err := fault(func() { gather(dst, idx, mask, mem) })
				require.NoError(t, err)
				require.GreaterOrEqual(t, addr, base+uintptr(page))
				require.Less(t, addr, base+uintptr(2*page))
			}
		}
		for _, form := range affineForms {
			for _, x := range []int{0, 1, form.size, 12} {
				a := Affine{At: page + 16, X: -x, W: n, H: 1}
				_, err := fault(func() { form.load(make([]uint32, n), mem, a) })
				require.NoError(t, err, "%+v", a)
				_, err = fault(func() { form.store(mem, a, make([]uint32, n)) })
				require.NoError(t, err, "%+v", a)
				a.At, a.X = page-n*form.size+1, form.size
				_, err = fault(func() { form.load(make([]uint32, n), mem, a) })
				require.NoError(t, err, "%+v", a)
			}
		}
	}

	line := Affine{At: page - 16, X: 4, Y: 8, W: 8, H: 3}
	same := Affine{At: page - 16, Y: 4, W: 8, H: 3}
	all, dst := make([]uint32, 24), make([]uint32, 24)
	Splat(all, ^uint32(0))
	_, err := fault(func() { StoreAffineMask(mem, line, all, dst) })
	require.NoError(t, err)
	if accelerated {
		_, err = fault(func() { MulAddAffine(dst, mem, same, mem, line, all) })
		require.NoError(t, err)
	}

	// And it still works beside it.
	require.Equal(t, -1, Gather32(dst, make([]uint32, len(dst)), mem))
}
