package shm

import (
	"errors"
	"math"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// faults is how many page faults this thread has had.
func faults(t testing.TB) int64 {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return u.Minflt
}

// allocated is how many bytes of memory have pages.
func allocated(t testing.TB, m *Memory) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(m.FD(), &st); err != nil {
		t.Fatal(err)
	}
	return uint64(st.Blocks) * 512
}

func touch(b []byte) {
	for i := 0; i < len(b); i += int(PageBytes) {
		b[i] = 1
	}
}

func TestPopulate(t *testing.T) {
	leakcheck.Check(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const bytes = 2*populatePiece + 5 // in three pieces, the last of which is no page
	m := create(t, bytes)
	b, err := m.Map(0, bytes, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Unmap(b); err != nil {
			t.Error(err)
		}
	}()
	b[PageBytes] = 7
	switch done := Populate(b, populatePiece+PageBytes); {
	case done == 0:
		t.Skip("SKIPPED: this kernel does not populate (before Linux 5.14)")
	case done != populatePiece+PageBytes || allocated(t, m) != populatePiece+PageBytes:
		t.Fatalf("at most %d bytes: %d done, %d have pages", populatePiece+PageBytes, done, allocated(t, m))
	}
	if done := Populate(b, math.MaxUint64); done != bytes || allocated(t, m) != m.Size() {
		t.Fatalf("all %d bytes: %d done, %d have pages", m.Size(), done, allocated(t, m))
	}
	if b[0] != 0 || b[PageBytes] != 7 {
		t.Error("what was in the pages has changed")
	}
	before := faults(t)
	touch(b)
	if n := faults(t) - before; n > 64 { // of some 2048; the runtime has its own
		t.Errorf("touching has faulted %d times", n)
	}
}

// Memory that cannot be populated is left to be touched, or not.
func TestPopulateWithout(t *testing.T) {
	if done := Populate(make([]byte, 2*PageBytes+1)[1:], math.MaxUint64); done != 0 {
		t.Errorf("what is no mapping: %d bytes done", done)
	}
	if Populate(nil, 1) != 0 {
		t.Error("nothing was populated")
	}
}

func TestBack(t *testing.T) {
	leakcheck.Check(t)
	const bytes = maxPieces*uint64(len(zeros)) + 3<<16 + 4096 // more than one call takes
	m := create(t, bytes)
	if err := m.Back(PageBytes, 2*PageBytes); err != nil {
		t.Fatal(err)
	}
	if n := allocated(t, m); n != 2*PageBytes {
		t.Errorf("%d bytes have pages", n)
	}
	if err := m.Back(0, bytes); err != nil {
		t.Fatal(err)
	}
	if n := allocated(t, m); n != bytes {
		t.Errorf("of %d bytes %d have pages", bytes, n)
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.FD(), &st); err != nil || uint64(st.Size) != bytes {
		t.Errorf("size %d, %v", st.Size, err)
	}
	b := mapAll(t, m)
	for i, v := range b {
		if v != 0 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	for _, r := range [][2]uint64{{1, PageBytes}, {0, PageBytes + 1}, {bytes, PageBytes}, {0, bytes + PageBytes}} {
		if err := m.Back(r[0], r[1]); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Back(%d, %d): %v", r[0], r[1], err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Back(0, PageBytes); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Back of closed memory: %v", err)
	}
}
