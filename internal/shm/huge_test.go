package shm

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

const hugePool = "/proc/sys/vm/nr_hugepages"

// hugePages sets pages more aside on this host than are in use, for one test. Tests of
// other packages that do so wait for its end (flock).
func hugePages(t *testing.T, pages int) {
	t.Helper()
	if pool, err := os.Open(hugePool); err == nil {
		t.Cleanup(func() { pool.Close() })
		if err := unix.Flock(int(pool.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	count := func(file string) int {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Skipf("SKIPPED: no huge pages on this host: %v", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const free = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
	before := count(hugePool)
	want := before - count(free) + pages
	set := func(n int) error { return os.WriteFile(hugePool, []byte(strconv.Itoa(n)), 0) }
	if err := set(want); err != nil {
		t.Skipf("SKIPPED: needs root to set huge pages aside: %v", err)
	}
	t.Cleanup(func() {
		if err := set(before); err != nil {
			t.Error(err)
		}
	})
	if got := count(free); got != pages {
		t.Skipf("SKIPPED: the host sets %d huge pages aside, not %d", got, pages)
	}
}

func createHuge(t *testing.T, n uint64) *Memory {
	t.Helper()
	m, err := CreateHuge("shm-test", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestHuge(t *testing.T) {
	leakcheck.Check(t)
	hugePages(t, 3)
	m := createHuge(t, 3*HugeBytes)
	if m.Granule() != HugeBytes || m.Size() != 3*HugeBytes {
		t.Fatalf("granule %d, size %d", m.Granule(), m.Size())
	}
	// The host has no free huge page, and nothing here needs one.
	none := createHuge(t, HugeBytes)
	if none.Granule() != PageBytes || none.Size() != HugeBytes {
		t.Errorf("without huge pages: granule %d, size %d", none.Granule(), none.Size())
	}
	b := mapAll(t, m)
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("fresh memory is not zero")
	}
	fill := func() {
		for i := range b {
			b[i] = 0xaa
		}
	}
	fill()

	fd, err := m.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	peer, err := FromFD(fd, 3*HugeBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if peer.Granule() != HugeBytes {
		t.Errorf("a peer sees pages of %d", peer.Granule())
	}
	// A mapping that ends within a page.
	part, err := peer.Map(HugeBytes, HugeBytes+5, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(part) != HugeBytes+5 || part[len(part)-1] != 0xaa {
		t.Errorf("mapped %d bytes, the last is %#x", len(part), part[len(part)-1])
	}
	if err := Unmap(part); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, 4 * HugeBytes} {
		if err := unix.Ftruncate(peer.FD(), n); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v", n, err)
		}
	}

	// Zero takes small pages, from the middle of one huge page into the next.
	off, n := uint64(HugeBytes)-PageBytes, 2*PageBytes
	if err := m.Zero(off, n); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b[off:off+n], make([]byte, n)) || b[off-1] != 0xaa || b[off+n] != 0xaa {
		t.Error("Zero did not zero its pages, or zeroed others")
	}
	if err := m.Punch(PageBytes, PageBytes); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Punch of less than a huge page: %v", err)
	}
	if _, err := m.Map(PageBytes, PageBytes, false); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Map within a huge page: %v", err)
	}
	if err := m.Zero(1, PageBytes); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Zero of less than a page: %v", err)
	}
	// Punched pages go back to the host, which has given them away before they are touched
	// again.
	if err := peer.Punch(HugeBytes, HugeBytes); err != nil {
		t.Fatal(err)
	}
	taker := createHuge(t, HugeBytes)
	if taker.Granule() != HugeBytes {
		t.Fatal("the page did not go back to the host")
	}
	if b[0] != 0xaa || b[2*HugeBytes] != 0xaa {
		t.Error("Punch took another page")
	}
	if err := m.Zero(HugeBytes, PageBytes); !errors.Is(err, gpuerr.IO) {
		t.Errorf("Zero of a page that is gone: %v", err)
	}
	if err := taker.Close(); err != nil {
		t.Fatal(err)
	}
	if b[HugeBytes] != 0 {
		t.Error("punched memory is not zero")
	}
}

// Other sizes are of ordinary pages.
func TestHugeFallsBack(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []uint64{1, HugeBytes + 1, HugeBytes - 1, 3 * PageBytes} {
		m := createHuge(t, n)
		if want := (n + PageBytes - 1) &^ (PageBytes - 1); m.Granule() != PageBytes || m.Size() != want {
			t.Errorf("CreateHuge(%d): granule %d, size %d", n, m.Granule(), m.Size())
		}
	}
	for _, n := range []uint64{0, 1 << 63} {
		if _, err := CreateHuge("shm-test", n); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("CreateHuge(%d): %v", n, err)
		}
	}
	m := createHuge(t, 2*PageBytes)
	b := mapAll(t, m)
	b[0], b[PageBytes] = 1, 1
	if err := m.Zero(0, PageBytes); err != nil {
		t.Fatal(err)
	}
	if b[0] != 0 || b[PageBytes] != 1 {
		t.Error("Zero did not zero its page, or zeroed another")
	}
}
