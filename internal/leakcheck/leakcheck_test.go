package leakcheck

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { Main(m) }

func TestNothingLeft(t *testing.T) {
	Check(t)
	s := Take()
	done := make(chan struct{})
	go close(done)
	<-done
	if left := s.Left(); len(left) > 0 {
		t.Errorf("Left() = %q, want nothing", left)
	}
}

// leftNow is Left without the grace time, for resources that are known to stay.
func leftNow(s Snapshot) string { return strings.Join(s.beyond(look()), "\n") }

func TestFindsGoroutine(t *testing.T) {
	Check(t)
	s := Take()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); <-stop }()
	if left := leftNow(s); !strings.Contains(left, "TestFindsGoroutine") {
		t.Errorf("a blocked goroutine is not found: %q", left)
	}
	close(stop)
	<-stopped
}

func TestFindsDescriptor(t *testing.T) {
	Check(t)
	s := Take()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if left := leftNow(s); !strings.Contains(left, os.DevNull) {
		t.Errorf("an open descriptor is not found: %q", left)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFindsMapping(t *testing.T) {
	Check(t)
	s := Take()
	fd, err := unix.MemfdCreate("leakcheck-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if left := leftNow(s); !strings.Contains(left, "mapping: ") || !strings.Contains(left, "memfd:leakcheck-test") {
		t.Errorf("a mapping is not found: %q", left)
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
}
