package shm

import "golang.org/x/sys/unix"

// populatePiece is how much is asked of the kernel at once: it holds the lock of the
// process's address space meanwhile, which a growing heap waits for.
const populatePiece = 4 << 20

// Populate has the kernel put pages under the first bytes of a writable mapping that
// Map returned, at most so many, without a fault for each. What is in the pages stays as it
// is. They are read for that: the kernel maps those around one that is read, where they are
// there already, and of shared memory so that they can be written to. It is a convenience
// that may do nothing: it ends with the first page that the host has not, and at once where
// the kernel cannot (it can from Linux 5.14 on: madvise(2)). The rest comes when it is
// touched, as ever. It returns how many bytes are done.
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

// Back puts pages under [off, off+n), multiples of Granule, by writing zeros over what
// is there: for memory that nobody else has yet. Unlike Populate it needs no mapping, and
// so stops nobody who maps or unmaps; it does not run under a filter of system calls
// either.
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
