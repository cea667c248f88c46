package ring

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// TestOtherVersions: a client refuses rings of another version, and says of which both are.
func TestOtherVersions(t *testing.T) {
	for _, version := range []uint32{0, 1, 4, 6, 1 << 31} {
		leakcheck.Check(t)
		s := newServer(t, Config{Entries: 4, ArgBytes: 64})
		h := s.layout.header()
		h.version, h.entries = version, 3 // whatever else there may be in the header of another version
		storeHeader(s.mapping, h)
		ring, sq, cq, err := s.HandOut()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Attach(ring, sq, cq)
		if !errors.Is(err, gpuerr.Version) {
			t.Errorf("version %d: Attach() = %v", version, err)
		}
		if msg := gpuerr.From(err).Msg; version == 4 && (!strings.Contains(msg, "version 4") || !strings.Contains(msg, "version 5")) {
			t.Errorf("the versions are not named: %s", msg)
		}
	}
}

// TestOldClientsSee: the words by which clients of all versions know a ring, and refuse one of
// another version, stay where they are.
func TestOldClientsSee(t *testing.T) {
	s := newServer(t, Config{Entries: 4, ArgBytes: 64})
	if string(s.mapping[:8]) != "CAPRING1" || binary.LittleEndian.Uint32(s.mapping[8:]) != 5 {
		t.Errorf("a ring begins with %q", s.mapping[:16])
	}
}

// TestClientTakesMemoryAway: the memory of a ring cannot be made shorter. Pages that are
// punched out read as zeros, by which the ring ends.
func TestClientTakesMemoryAway(t *testing.T) {
	leakcheck.Check(t)
	s := newServer(t, Config{Entries: 64, ArgBytes: 64 << 10})
	ring, sq, cq, err := s.HandOut()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(ring), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	c, err := Attach(ring, sq, cq)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, bytes := range []int64{0, 4096, 1 << 30} {
		if err := unix.Ftruncate(fd, bytes); !errors.Is(err, unix.EPERM) {
			t.Fatalf("the memory of a ring is made %d bytes long: %v", bytes, err)
		}
	}

	push(t, c, NopEntry(1), nil, nil)
	flush(t, c)
	b := NewBatch(0)
	if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	push(t, c, LaunchEntry(1, 1, Dim3{}, Dim3{}, 0, 0), []Binding{{Buffer: 1}}, nil)
	flush(t, c)
	punch := func(off, n int64) {
		t.Helper()
		if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n); err != nil {
			t.Fatal(err)
		}
	}
	punch(int64(s.arena)&^4095+4096, 32<<10)
	punch(4096, int64(s.arena)&^4095-4096) // also entries
	if n, err := s.TakeMany(b, 2); n != 1 || err != nil {
		t.Fatalf("TakeMany() of entries that are gone = %d, %v", n, err)
	}
	s.Publish(make([]Completion, 2))
	punch(0, 4096) // and the header
	if n, err := s.TakeMany(b, 2); n != 0 || !errors.Is(err, gpuerr.Protocol) {
		t.Errorf("TakeMany() of a ring that is gone = %d, %v", n, err)
	}
}
