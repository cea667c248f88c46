package shm

import "golang.org/x/sys/unix"

// populatePiece is how much one call populates: the call holds the lock of the process's
// address space, which a growing heap waits for.
const populatePiece = 4 << 20

// Populate makes the kernel put pages under the first bytes of a writable mapping that Map
// returned, at most so many, without a fault for each. The contents of pages stay as they
// are. The pages are read for that: the kernel maps pages around one that is read if they
// exist, and those of shared memory writable. Populate is a convenience that may do nothing.
// It ends at the first page that the host lacks, and at once if the kernel cannot do it (it
// can from Linux 5.14 on: madvise(2)). Other pages come when they are touched. It returns how
// many bytes are done.
//
// Processes that package sandbox confines must not call it: their filter of system
// calls ends them.
func Populate(b []byte, most uint64) (done uint64) {
	b = b[:cap(b)] // as it was mapped, to the end of a huge page
	total := min(uint64(len(b)), most)
	for done < total {
		piece := min(populatePiece, total-done)
		switch unix.Madvise(b[done:done+piece], unix.MADV_POPULATE_READ) {
		case nil:
			done += piece
		case unix.EINTR:
		default:
			return done
		}
	}
	return done
}

var zeros [64 << 10]byte // never written to

// Back puts pages under [off, off+n), multiples of Granule, by writing zeros: for memory that
// no other process has yet. Unlike Populate it needs no mapping, and so blocks no thread that
// maps or unmaps; it does not run under a filter of system calls either.
func (m *Memory) Back(off, n uint64) error {
	if err := m.checkRange("back", off, n, m.granule); err != nil || m.granule > PageBytes {
		return err // huge pages are all there (CreateHuge)
	}

	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.fd < 0 {
		return errMemoryClosed
	}

	pieces := make([][]byte, 0, min(n/uint64(len(zeros))+1, maxPieces))
	for n > 0 {
		pieces = pieces[:0]
		for left := n; left > 0 && len(pieces) < maxPieces; {
			piece := zeros[:min(uint64(len(zeros)), left)]
			pieces, left = append(pieces, piece), left-uint64(len(piece))
		}
		written, err := unix.Pwritev(m.fd, pieces, int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil || written == 0 {
			return ioError("put pages under shared memory", err)
		}
		off, n = off+uint64(written), n-uint64(written)
	}

	return nil
}

// maxPieces are written by one system call (UIO_MAXIOV is 1024).
const maxPieces = 1024
