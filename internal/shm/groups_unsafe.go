package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// maxGroups is the most that a process has besides its own (NGROUPS_MAX).
const maxGroups = 1 << 16

// PeerGroups are the supplementary groups of the process that connected a UNIX socket, when
// it did (SO_PEERGROUPS, Linux 4.13), for which package unix has no call.
func PeerGroups(fd int) ([]uint32, error) {
	for n := 64; ; n *= 2 {
		groups := make([]uint32, n)
		bytes := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&bytes)), 0)
		switch {
		case errno == unix.ERANGE && n < maxGroups:
		case errno != 0:
			return nil, gpuerr.New(gpuerr.IO, "read the groups of a connection: %v", errno)
		default:
			return groups[:min(int(bytes/4), n)], nil
		}
	}
}
