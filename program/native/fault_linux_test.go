package native

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/program/library/librarytest"
)

// vanishing is a binding that loses its memory when its file is truncated.
func vanishing(t *testing.T, contents []byte) (binding []byte, vanish func()) {
	t.Helper()
	fd, err := unix.MemfdCreate("binding", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	size := (len(contents) + 4096) &^ 4095 // at least a page
	require.NoError(t, unix.Ftruncate(fd, int64(size)))
	m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(m) })
	copy(m, contents)
	file, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(file) })
	return m[:len(contents)], func() { require.NoError(t, unix.Ftruncate(file, 0)) }
}

// runs does a call as the mock device would, and reports whether memory was lost.
func runs(b *Body, c *Call, items uint64) (fault any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() {
		fault = recover()
		RestoreFloats()
	}()
	b.Run(c, 0, items)
	return nil
}

// TestMemoryThatGoes removes the memory of each binding of each body in turn: the
// assembly must fault as a Go panic that names the address, and everything must
// work afterwards.
func TestMemoryThatGoes(t *testing.T) {
	cases := map[string]librarytest.Case{}
	for _, name := range names {
		for _, c := range drawn()[name] {
			call := callOf(&c, c.Fresh())
			n, ok := bodies[name].Items(call)
			for _, b := range c.Bindings {
				ok = ok && len(b) > 0
			}
			if ok && n > 0 && (name != "topk_f32" || call.inline(0) > 0) && (name != "attention_f32" || call.inline(3) > 0) {
				cases[name] = c
			}
		}
	}

	atLevel(t, func(t *testing.T) {
		for _, name := range names {
			b := bodies[name]
			c, ok := cases[name]
			require.True(t, ok, "no case of %s reads all its bindings", name)
			for gone := range c.Bindings {
				call := callOf(&c, c.Fresh())
				var vanish func()
				call.Bindings[gone], vanish = vanishing(t, c.Bindings[gone])
				n, ok := b.Items(call)
				require.True(t, ok, c.Name)
				require.Nil(t, runs(b, call, n), c.Name)
				vanish()
				fault := runs(b, call, n)
				require.NotNil(t, fault, "%s: binding %d", c.Name, gone)
				address, ok := fault.(interface{ Addr() uintptr })
				require.True(t, ok, "%s: %v", c.Name, fault)
				require.NotZero(t, address.Addr())
			}

			require.NoError(t, func() error {
				got := c.Fresh()
				call := callOf(&c, got)
				n, _ := b.Items(call)
				b.Run(call, 0, n)
				return c.Compare(got)
			}())
		}
	})
}

// fenced is a copy of a binding that ends where memory ends.
func fenced(t *testing.T, contents []byte) []byte {
	t.Helper()
	size := (len(contents) + 4095) &^ 4095
	m, err := unix.Mmap(-1, 0, size+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(m) })
	require.NoError(t, unix.Mprotect(m[size:], unix.PROT_NONE))
	b := m[size-len(contents) : size]
	copy(b, contents)
	return b
}

// TestNothingBeyondIsTouched: not even reads go beyond a binding's end.
func TestNothingBeyondIsTouched(t *testing.T) {
	cases := drawn()
	atLevel(t, func(t *testing.T) {
		for _, name := range names {
			b := bodies[name]
			for _, c := range cases[name] {
				got := make([][]byte, len(c.Bindings))
				for i, contents := range c.Bindings {
					got[i] = fenced(t, contents)
				}
				call := callOf(&c, got)
				n, ok := b.Items(call)
				if !ok {
					require.True(t, refused(&c), c.Name)
					continue
				}
				require.Nil(t, runs(b, call, n), c.Name)
				require.NoError(t, c.Compare(got))
			}
		}
	})
}
