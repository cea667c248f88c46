package shm

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const patience = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func create(t testing.TB, n uint64) *Memory {
	t.Helper()
	m, err := Create("shm-test", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func mapAll(t testing.TB, m *Memory) []byte {
	t.Helper()
	b, err := m.Map(0, m.Size(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestMemory(t *testing.T) {
	leakcheck.Check(t)
	m := create(t, 3*PageBytes-5)
	if m.Size() != 3*PageBytes {
		t.Errorf("Size() = %d", m.Size())
	}
	b := mapAll(t, m)
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("fresh memory is not zero")
	}
	fd, err := m.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	other, err := FromFD(fd, m.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	second, err := other.Map(PageBytes, PageBytes, false)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(second)
	for i := range b {
		b[i] = 0xaa
	}
	if second[0] != 0xaa {
		t.Error("the mapping is not shared")
	}
	if err := m.Punch(PageBytes, PageBytes); err != nil {
		t.Fatal(err)
	}
	if second[0] != 0 || second[PageBytes-1] != 0 || b[PageBytes-1] != 0xaa || b[2*PageBytes] != 0xaa {
		t.Error("Punch did not zero its page, or zeroed another")
	}
	// No process can make it smaller or larger, or seal it against writing.
	for _, n := range []int64{0, int64(4 * PageBytes)} {
		if err := unix.Ftruncate(other.FD(), n); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v", n, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(other.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != unix.EPERM {
		t.Errorf("a further seal: %v", err)
	}
	for _, fd := range []int{m.FD(), other.FD()} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x, %v", flags, err)
		}
	}
}

func TestMemoryRefuses(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []uint64{0, math.MaxUint64, math.MaxInt64} {
		if _, err := Create("shm-test", n); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Create(%d): %v", n, err)
		}
	}
	m := create(t, 2*PageBytes)
	for _, r := range [][2]uint64{{1, 1}, {0, 0}, {0, 2*PageBytes + 1}, {2 * PageBytes, 1}, {PageBytes, math.MaxUint64}, {math.MaxUint64 &^ (PageBytes - 1), PageBytes}} {
		if _, err := m.Map(r[0], r[1], false); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Map(%d, %d): %v", r[0], r[1], err)
		}
	}
	for _, r := range [][2]uint64{{1, PageBytes}, {0, 1}, {0, 3 * PageBytes}, {PageBytes, math.MaxUint64 &^ (PageBytes - 1)}} {
		if err := m.Punch(r[0], r[1]); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Punch(%d, %d): %v", r[0], r[1], err)
		}
	}
	if err := m.Punch(2*PageBytes, 0); err != nil {
		t.Errorf("an empty Punch: %v", err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Map(0, 1, false); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Map after Close: %v", err)
	}
	if err := m.Punch(0, PageBytes); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Punch after Close: %v", err)
	}
	if _, err := m.DupFD(); !errors.Is(err, gpuerr.Closed) || m.FD() != -1 {
		t.Errorf("DupFD after Close: %v, FD() = %d", err, m.FD())
	}
	if err := Unmap(nil); err != nil {
		t.Errorf("Unmap(nil): %v", err)
	}
}

// A descriptor from outside must be sealed memory of the size it claims.
func TestFromFDRefuses(t *testing.T) {
	memfd := func(flags, seals int) int {
		fd, err := unix.MemfdCreate("foreign", unix.MFD_CLOEXEC|flags)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, int64(PageBytes)); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	leakcheck.Check(t)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fd    int
		bytes uint64
	}{
		"not sealed":    {memfd(unix.MFD_ALLOW_SEALING, 0), 1},
		"not sealable":  {memfd(0, 0), 1},
		"sealed GROW":   {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW), 1},
		"too small":     {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), PageBytes + 1},
		"far too small": {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), math.MaxUint64},
		"no memory":     {null, 1},
		"no descriptor": {-1, 1},
	} {
		if _, err := FromFD(c.fd, c.bytes); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := FromFD(memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), 1)
	if err != nil || m.Size() != PageBytes {
		t.Fatalf("FromFD of good memory: %v", err)
	}
	m.Close()
}
