package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// Sizes, as in loops.c.
const (
	side2048 = 2048
	side512  = 512
	side288  = 288
)

// memory is the common memory of all sides: pages of one memfd, because the place
// of pages can matter more than the code that reads them.
type memory struct {
	file *os.File
	all  []byte

	m, x, y []byte // a matrix of side2048, and vectors
	a, b, c []byte // matrices of side512
}

// newMemory fills it with numbers from [-1, 1). The caller closes it.
func newMemory() (*memory, error) {
	const matrix, vector, square = 4 * side2048 * side2048, 4 * side2048, 4 * side512 * side512
	const size = matrix + 2*vector + 3*square
	fd, err := unix.MemfdCreate("bench-kernels", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}

	m := &memory{file: os.NewFile(uintptr(fd), "bench-kernels")}
	if err := m.file.Truncate(size); err != nil {
		m.Close()
		return nil, err
	}
	if m.all, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		m.Close()
		return nil, os.NewSyscallError("mmap", err)
	}

	r := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < size; at += 4 {
		binary.LittleEndian.PutUint32(m.all[at:], math.Float32bits(2*r.Float32()-1))
	}

	rest := m.all
	for _, part := range []struct {
		to   *[]byte
		size int
	}{{&m.m, matrix}, {&m.x, vector}, {&m.y, vector}, {&m.a, square}, {&m.b, square}, {&m.c, square}} {
		*part.to, rest = rest[:part.size:part.size], rest[part.size:]
	}

	return m, nil
}

// Close unmaps it.
func (m *memory) Close() {
	if m.all != nil {
		_ = unix.Munmap(m.all)
	}
	_ = m.file.Close()
}

// matvec and matmul are the bindings and the inline block of these kernels.
func (m *memory) matvec(side uint32) ([][]byte, []byte) {
	return [][]byte{m.m, m.x, m.y}, words(side, side)
}

func (m *memory) matmul() ([][]byte, []byte) {
	return [][]byte{m.a, m.b, m.c}, words(side512, side512, side512)
}

func words(v ...uint32) []byte {
	var out []byte
	for _, w := range v {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}
