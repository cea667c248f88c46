package benchtest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// The figure is the ratio of the measured work, without its preparation, and the sides take
// turns.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order string
		side := func(name string, takes time.Duration) Side {
			return Side{
				Prepare: func() error { time.Sleep(time.Hour); return nil },
				Do:      func() error { order += name; time.Sleep(takes); return nil },
			}
		}
		f, err := Compare(5, side("a", 3*time.Second), side("b", 2*time.Second))
		require.NoError(t, err)
		require.Equal(t, Figure{1.5, 3 * time.Second, 2 * time.Second}, f)
		require.Equal(t, "abbaabbaab", order)
		d, err := Median(3, side("c", time.Minute))
		require.NoError(t, err)
		require.Equal(t, time.Minute, d)
		d, err = Median(3, Side{Timed: func() (time.Duration, error) { time.Sleep(time.Hour); return time.Second, nil }})
		require.NoError(t, err)
		require.Equal(t, time.Second, d)
	})
	_, err := Compare(0, Side{}, Side{})
	require.Error(t, err)
	broken := errors.New("broken")
	_, err = Compare(1, Side{Do: func() error { return nil }}, Side{Prepare: func() error { return broken }})
	require.ErrorIs(t, err, broken)
}

func TestPingPong(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector does not see that a bare system call orders two threads")
	}
	var before, set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	undo, err := Pin(0)
	require.NoError(t, err)
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	require.Equal(t, 1, set.Count())
	p, err := NewPingPong()
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, p.Round())
	}
	d, err := p.OneWay()
	require.NoError(t, err)
	require.Positive(t, d)
	require.NoError(t, p.Close())
	require.NoError(t, undo())
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	require.Equal(t, before, set)
}
