package shm

import (
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// HugeBytes is the size of a huge page here: the smaller of x86's two, and what
// its IOMMUs map in one entry.
const HugeBytes = 2 << 20

// CreateHuge is Create with huge pages if bytes is a multiple of HugeBytes and the host has
// enough of them reserved (vm.nr_hugepages), and otherwise with ordinary pages: see Granule.
// All huge pages are allocated when it returns: the first touch of a missing one can kill the
// process (SIGBUS).
func CreateHuge(name string, bytes uint64) (*Memory, error) {
	if bytes == 0 || bytes%HugeBytes != 0 {
		return Create(name, bytes)
	}
	m, err := sealed(name, bytes, HugeBytes, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err != nil { // a host without any, such as one of another page size
		return Create(name, bytes)
	}
	if m.fallocate(0, 0, bytes) == nil {
		return m, nil
	}
	if err := m.Close(); err != nil {
		return nil, err
	}
	return Create(name, bytes)
}

// granuleOf is the page size of a memfd.
func granuleOf(fd int) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Fstatfs(fd, &st)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, ioError("ask for the page size of shared memory", err)
		case st.Type == unix.HUGETLBFS_MAGIC && st.Bsize > 0:
			return uint64(st.Bsize), nil
		}
		return PageBytes, nil
	}
}

// Zero makes pages [off, off+n) read as zero; both are multiples of PageBytes.
// Unlike after Punch, touching them needs nothing from the host: huge pages stay
// and are written over.
func (m *Memory) Zero(off, n uint64) error {
	if m.granule == PageBytes {
		return m.Punch(off, n)
	}
	if err := m.checkRange("zero", off, n, PageBytes); err != nil || n == 0 {
		return err
	}

	start := off &^ (m.granule - 1)
	b, err := m.Map(start, off+n-start, true)
	if err != nil {
		return err
	}

	defer func() { _ = Unmap(b) }() // it was mapped just now

	// A peer may have punched a page out, and the host have no other for it.
	if _, faulted := Guard(func() { clear(b[off-start:]) }); faulted {
		return gpuerr.New(gpuerr.IO, "zero: a huge page of [%d, +%d) was taken away and the host has none left; raise vm.nr_hugepages", off, n)
	}

	return nil
}
