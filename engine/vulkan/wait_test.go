package vulkan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/wire"
	"capgpu/program/instrument"
)

// seen is the trap buffer as a host finds it, in memory of the test.
func seen(first uint32, before map[int]uint32) *Device {
	d := newDevice()
	d.trap = block{mapped: make([]byte, instrument.BufferBytes(64))}
	instrument.ArmHead(d.trap.mapped)
	d.trap.store(firstOff, first)
	for k, v := range before {
		d.trap.store(beforeOff+4*k, v)
	}
	return d
}

// Run 5 had the entries 10 to 14. The word first may be that of a later run.
func TestVerdict(t *testing.T) {
	const run, k, next = 5, 5 % wire.MaxAhead, 6 % wire.MaxAhead
	whole := wire.Result{Begun: 5}
	early := wire.Result{Begun: 3, Early: true}
	skipped := wire.Result{Skipped: true}
	for name, c := range map[string]struct {
		behind    bool
		submitted uint64
		first     uint32
		before    map[int]uint32
		want      wire.Result
		wrong     bool
	}{
		"whole, alone":                       {submitted: 5, first: none, want: whole},
		"whole, behind":                      {behind: true, submitted: 5, first: none, before: map[int]uint32{k: none}, want: whole},
		"early, alone":                       {submitted: 5, first: 12, want: early},
		"early, the next has not begun":      {submitted: 6, first: 12, before: map[int]uint32{next: notYet}, want: early},
		"early, the next is skipped":         {submitted: 6, first: all, before: map[int]uint32{next: 12}, want: early},
		"whole, the next ended early":        {submitted: 6, first: 20, before: map[int]uint32{next: none}, want: whole},
		"whole, the one behind it, too":      {submitted: 7, first: all, before: map[int]uint32{next: none}, want: whole},
		"skipped":                            {behind: true, submitted: 5, first: all, before: map[int]uint32{k: 3}, want: skipped},
		"skipped, as the one before":         {behind: true, submitted: 6, first: all, before: map[int]uint32{k: all, next: all}, want: skipped},
		"skipped, by an entry of its list":   {behind: true, submitted: 5, first: all, before: map[int]uint32{k: 12}, want: skipped},
		"an entry below it":                  {submitted: 5, first: 9, wrong: true},
		"an entry above it":                  {submitted: 5, first: 15, wrong: true},
		"all are skipped, and it was whole?": {submitted: 5, first: all, wrong: true},
		"it never began":                     {behind: true, submitted: 5, first: none, before: map[int]uint32{k: notYet}, wrong: true},
	} {
		d := seen(c.first, c.before)
		d.mu.Lock()
		d.submitted, d.waited = c.submitted, 4
		d.turns[k] = turn{list: &list{first: 10, entries: 5}, behind: c.behind}
		slot := d.trap.mapped[instrument.SlotOff(12):][:wire.SlotBytes]
		slot[0], slot[255] = 7, 9
		got, err := d.verdictLocked(run)
		ended := d.ended
		d.mu.Unlock()
		if c.wrong {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		if c.want.Early {
			require.EqualValues(t, 12, ended, name)
			copy(c.want.Slot[:], slot)
		}
		require.Equal(t, c.want, got, name)
	}
}

func TestDeviceTime(t *testing.T) {
	for _, c := range []struct {
		from, to uint64
		bits     uint32
		want     time.Duration
	}{
		{5, 105, 64, 200}, {1<<32 - 10, 1<<32 + 10, 64, 40}, {1<<32 - 10, 10, 32, 40}, {7, 7, 36, 0},
	} {
		d := newDevice()
		d.stampBits, d.period = c.bits, 2
		s := stamps{first: 2, seen: &block{mapped: make([]byte, 64)}}
		_, err := d.deviceTime(s)
		require.Error(t, err, "not written")
		copy(s.seen.mapped[16:], words(uint32(c.from), uint32(c.from>>32), uint32(c.to), uint32(c.to>>32)))
		took, err := d.deviceTime(s)
		require.NoError(t, err)
		require.Equal(t, c.want, took)
		s.clear()
		require.Equal(t, make([]byte, 64), s.seen.mapped)
	}
}

// A run is later than another by the difference of their words, also where those wrap; none
// is 0.
func TestRunWord(t *testing.T) {
	for _, run := range []uint64{1, 2, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 40} {
		require.NotZero(t, runWord(run))
		require.Positive(t, int32(runWord(run+3)-runWord(run)))
		require.Negative(t, int32(runWord(run)-runWord(run+3)))
	}
}
