package ring

import (
	"testing"
	"time"
)

// TestSpinsFor: the measure makes sense on any machine.
func TestSpinsFor(t *testing.T) {
	if n := spinsFor(0) + spinsFor(-1); n != 0 {
		t.Errorf("%d looks in no time", n)
	}
	if n := spinsFor(1); n != 1 {
		t.Errorf("%d looks in 1 ns", n)
	}
	if n := spinsFor(50 * time.Microsecond); n < 50 || n > 50_000 {
		t.Errorf("%d looks in 50 µs", n)
	}
	t.Logf("a look takes %.1f ns", lookNanos())
}
