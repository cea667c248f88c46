package sandbox

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The limits of a cgroup. Not every host has these controllers in cgroup v2. The guest in
// which package qemu runs the tests named Guest and Huge has all of them, and lets none be
// skipped.

// A host that has everything can be asked for everything.
func TestGuestHasEveryMechanism(t *testing.T) {
	needs(t, newJailer(t), Mechanisms...)
	c := newCell(t, newJailer(t, Mechanisms...), Driver, Limits{MemoryBytes: 256 << 20, Pids: 64})
	e, err := c.Check(sleeper(t, c, "driver"))
	require.NoError(t, err)
	require.Equal(t, Mechanisms, e.Mechanisms)
	t.Log(e)
}

// No device node of any mode can be opened.
func TestGuestDeviceNodes(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Devices)
	c := newCell(t, j, Driver, Limits{})
	require.Equal(t, "operation not permitted", run(t, c, "none", "open a device").did(t))
	require.Equal(t, "<nil>", run(t, c, "none", "open a file").did(t), "files are not devices")
}

// Above its limit the whole process is killed.
func TestGuestMemoryLimit(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Memory)
	o := run(t, newCell(t, j, Driver, Limits{MemoryBytes: 128 << 20}), "driver", "take a lot of memory")
	require.Contains(t, o.state.String(), "killed", "%s%s", o.said, o.log)
	require.Equal(t, "<nil>", run(t, newCell(t, j, Driver, Limits{MemoryBytes: 1 << 30}), "driver", "nothing").did(t))

	changed := newCell(t, j, Driver, Limits{MemoryBytes: 1 << 30})
	require.NoError(t, changed.SetLimits(Limits{MemoryBytes: 128 << 20}))
	require.Contains(t, run(t, changed, "driver", "take a lot of memory").state.String(), "killed", "the limit is what it was set to last")
}

func TestGuestPidsLimit(t *testing.T) {
	j := newJailer(t)
	needs(t, j, Pids)
	c := newCell(t, j, Driver, Limits{Pids: 32})
	require.Regexp(t, "^after [0-9]+: resource temporarily unavailable", run(t, c, "none", "fork bomb").did(t))
}

// If the kernel has the controller, a cell gets no huge pages.
func TestHugeLimit(t *testing.T) {
	j := newJailer(t)
	if j.groups == nil || j.groups.lacks("hugetlb") != nil {
		t.Skip("NOT TESTED: no hugetlb controller")
	}
	requireMax := func(c *Cell, bytes uint64) {
		max, err := words(c.group.path, "hugetlb.2MB.max")
		require.NoError(t, err)
		require.Equal(t, []string{strconv.FormatUint(bytes, 10)}, max)
	}
	for _, bytes := range []uint64{0, 4 << 20} {
		c := newCell(t, j, Driver, Limits{HugeBytes: bytes})
		requireMax(c, bytes)
		require.NoError(t, c.SetLimits(Limits{HugeBytes: 8 << 20}))
		requireMax(c, 8<<20)
	}
}
