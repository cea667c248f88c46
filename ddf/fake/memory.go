package fake

import "golang.org/x/sys/unix"

// memory is a sealed memfd.
type memory struct{ fd int }

func createMemory(name string, bytes uint64) (*memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	err = unix.Ftruncate(fd, int64(bytes))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &memory{fd}, nil
}

func (m *memory) FD() int { return m.fd }

func (m *memory) Map(off, n uint64, _ bool) ([]byte, error) {
	return unix.Mmap(m.fd, int64(off), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }

func (m *memory) Punch(off, n uint64) error {
	return unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
}

func (m *memory) Close() error { return unix.Close(m.fd) }
