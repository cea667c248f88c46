package shm

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Pages that were cut off a file fault as SIGBUS: Guard says so, and the next access
// works.
func TestGuard(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "cut")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(PageBytes)); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(PageBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if _, faulted := Guard(func() { b[8] = 1 }); faulted {
		t.Fatal("memory that is there faults")
	}
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	done := false
	if addr, faulted := Guard(func() { b[8] = 2; done = true }); !faulted || addr == 0 || done {
		t.Fatalf("faulted = %v at %#x, done = %v", faulted, addr, done)
	}
	if _, faulted := Guard(func() { done = true }); faulted || !done {
		t.Fatal("nothing was wrong")
	}
}

// A bug is not a fault of memory.
func TestGuardLetsBugsThrough(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the panic was swallowed")
		}
	}()
	var none *Memory
	Guard(func() { none.bytes++ })
}
