package refmodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// TestFailureTakesAlong: what was published with work that failed does not run, whatever it
// reads; what comes later does.
func TestFailureTakesAlong(t *testing.T) {
	s := NewSession(Limits{}, 2)
	for h := uint64(1); h <= 4; h++ {
		s.Add(h, &Buffer{Bytes: 4096, IOVA: h << 20, CanRead: true, CanWrite: true})
	}
	q, other := NewQueue(s), NewQueue(s)
	do := func(q *Queue, e Entry) outcome.Outcome {
		c, holds := q.Do(&e, nil)
		require.False(t, holds)
		return outcome.Outcome{Kind: outcome.Kind(c[1]), Cause: outcome.Cause(c[1] >> 8)}
	}
	copies := func(dst, src uint64) Entry { return Entry{OpCopy, 0, dst, 0, src, 0, 64} }
	require.Equal(t, outcome.Success, do(q, copies(2, 1)))
	s.Fails = func(uint64) bool { return true }
	require.Equal(t, outcome.Failed, do(q, copies(2, 1)).Kind)
	s.Fails = nil
	require.Equal(t, dependency, do(q, copies(3, 2)))
	require.Equal(t, dependency, do(other, Entry{OpFill, 0, 4, 0, 7, 0, 4}), "it reads nothing, on another queue")
	require.Equal(t, outcome.Success, do(q, Entry{OpNop}))
	s.Publish()
	require.Equal(t, outcome.Success, do(q, copies(3, 2)))
	require.Equal(t, outcome.Failed, do(q, Entry{OpFill, 0, 2, 4096, 7, 0, 4}).Kind)
	require.Equal(t, dependency, do(q, copies(3, 1)), "what is refused takes along, too")
}

// TestTheModelRefuses: one of each code, by hand.
func TestTheModelRefuses(t *testing.T) {
	s := NewSession(Limits{MaxGridDim: 8, MaxBlockDim: 8, MaxThreadsPerBlock: 16, MaxBindings: 1}, 2)
	s.Add(1, &Buffer{Bytes: 4096, CanRead: true})
	s.Add(2, NewFence(5))
	s.Add(3, &Program{Access: []Access{2}, Block: [3]uint32{1, 1, 1}})
	launch := Entry{OpLaunch | 1<<16, 0, 3, 0, 0, 0, 32 << 32}
	for name, x := range map[string]struct {
		e    Entry
		args []uint64
		code gpuerr.Code
	}{
		"a fill":                      {Entry{OpFill, 0, 1, 0, 7, 0, 4096}, nil, gpuerr.None},
		"a fill beyond the end":       {Entry{OpFill, 0, 1, 4, 7, 0, 4096}, nil, gpuerr.Invalid},
		"a fill of a fence":           {Entry{OpFill, 0, 2, 0, 7, 0, 4}, nil, gpuerr.Stale},
		"a fill of half a word":       {Entry{OpFill, 0, 1, 2, 7, 0, 4}, nil, gpuerr.Invalid},
		"a copy within itself":        {Entry{OpCopy, 0, 1, 0, 1, 63, 64}, nil, gpuerr.Invalid},
		"a copy beside itself":        {Entry{OpCopy, 0, 1, 0, 1, 64, 64}, nil, gpuerr.None},
		"a signal that is no news":    {Entry{OpSignal, 0, 2, 5}, nil, gpuerr.Invalid},
		"a wait for what is reached":  {Entry{OpWait, 0, 2, 5}, nil, gpuerr.None},
		"a launch without rights":     {launch, []uint64{1, 0, 0, 0}, gpuerr.Invalid},
		"a launch without arguments":  {launch, nil, gpuerr.Invalid},
		"a launch of a binding 0":     {launch, []uint64{0, 0, 0, 0}, gpuerr.Invalid},
		"a launch of a stale binding": {launch, []uint64{9, 0, 0, 0}, gpuerr.Stale},
		"op 7":                        {Entry{7}, nil, gpuerr.Invalid},
	} {
		c, holds := NewQueue(s).Do(&x.e, x.args)
		require.False(t, holds, name)
		require.Equal(t, x.code, gpuerr.Code(c[1]>>32), name)
	}
}
