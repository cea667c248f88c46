package shm

import (
	"errors"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// TestWakeTake: a caller that polls the descriptor itself takes the wakes and learns of the
// end, after them.
func TestWakeTake(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Take(); err != nil {
		t.Errorf("Take() of an empty pipe: %v", err)
	}
	for range 3 {
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Take(); err != nil {
		t.Errorf("Take() of three wakes: %v", err)
	}
	for range 2 {
		if err := r.Take(); !errors.Is(err, gpuerr.Disconnected) {
			t.Errorf("Take() at the end: %v", err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Take(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Take() after Close: %v", err)
	}
}
