package dmabuf_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// replace maps a file in the place of b, which is a mapping.
func replace(b []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}
