package peers

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// PageBytes is the granule of first touches.
const PageBytes = 4096

// MemfdLife is the life of shared memory without any service: made, mapped, each
// page touched, unmapped, freed.
func MemfdLife(bytes int) error {
	fd, err := unix.MemfdCreate("capgpu-bench", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	Touch(mem)
	return unix.Munmap(mem)
}

// Touch writes one byte of each page.
func Touch(mem []byte) {
	for i := 0; i < len(mem); i += PageBytes {
		mem[i] = 1
	}
}
