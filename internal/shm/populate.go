package shm

import "golang.org/x/sys/unix"

// populatePiece is how much is asked of the kernel at once: it holds the lock of the
// process's address space meanwhile, which a growing heap waits for.
const populatePiece = 4 << 20

// Populate has the kernel put pages under the first bytes of a writable mapping that
// Map returned, at most so many, as if each page had been written to, but without a
// fault for each. What is in the pages stays as it is. It is a convenience that may do
// nothing: it ends with the first page that the host has not, and at once where the
// kernel cannot (it can from Linux 5.14 on: madvise(2)). The rest comes when it is
// touched, as ever. It returns how many bytes are done.
//
// Processes that package sandbox confines must not call it: their filter of system
// calls ends them.
func Populate(b []byte, most uint64) (done uint64) {
	b = b[:cap(b)] // as it was mapped, to the end of a huge page
	total := min(uint64(len(b)), most)
	for done < total {
		piece := min(populatePiece, total-done)
		switch unix.Madvise(b[done:done+piece], unix.MADV_POPULATE_WRITE) {
		case nil:
			done += piece
		case unix.EINTR:
		default:
			return done
		}
	}
	return done
}
