package devicetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/outcome"
	"capgpu/program/instrument"
)

// patience is for a device that does not answer.
const patience = time.Minute

// kit is a device under test, and what a test asks of it.
type kit struct {
	*testing.T
	d        host.Device
	about    wire.Device
	ends     chan end
	ahead    int // runs that were submitted and not waited for
	programs map[string]*compiled
	frees    []interface{ Free() error } // at the end, last first
}

type end struct {
	wire.Result
	err error
}

func newKit(t *testing.T, d host.Device) *kit {
	k := &kit{T: t, d: d, about: d.Describe(), ends: make(chan end, wire.MaxAhead), programs: map[string]*compiled{}}
	go k.runWait()
	t.Cleanup(k.close)
	return k
}

// runWait hands on the ends of runs until the device is closed.
func (k *kit) runWait() {
	for {
		r, err := k.d.Wait()
		k.ends <- end{r, err}
		if err != nil {
			close(k.ends)
			return
		}
	}
}

// close closes the device when nothing runs.
func (k *kit) close() {
	for k.ahead > 0 && !k.Failed() {
		k.wait()
	}
	if k.ahead > 0 {
		return // a device that is stuck is not closed, but killed
	}

	for i := len(k.frees) - 1; i >= 0; i-- {
		require.NoError(k, k.frees[i].Free())
	}
	require.NoError(k, k.d.Close())
	last := k.next()
	require.ErrorIs(k, last.err, host.ErrClosed)
}

// owned is freed at the end of the test.
func (k *kit) owned(f interface{ Free() error }) { k.frees = append(k.frees, f) }

// record records a list.
func (k *kit) record(entries ...host.Entry) host.List {
	k.Helper()
	l, err := k.d.Record(entries)
	require.NoError(k, err)
	k.owned(l)
	return l
}

// submit submits a run of a list.
func (k *kit) submit(l host.List) {
	k.Helper()
	require.NoError(k, k.d.Submit(l))
	k.ahead++
}

// wait is the end of the oldest run.
func (k *kit) wait() wire.Result {
	k.Helper()
	e := k.next()
	require.NoError(k, e.err)
	k.ahead--
	return e.Result
}

func (k *kit) next() end {
	k.Helper()
	select {
	case e := <-k.ends:
		return e
	case <-time.After(patience):
		require.FailNow(k, "no run has ended", "in %v", patience)
		return end{err: errors.New("no run has ended")}
	}
}

// run runs entries as one list, to its end.
func (k *kit) run(entries ...host.Entry) wire.Result {
	k.Helper()
	k.submit(k.record(entries...))
	return k.wait()
}

// whole runs entries that come to their end.
func (k *kit) whole(entries ...host.Entry) wire.Result {
	k.Helper()
	r := k.run(entries...)
	k.isWhole(r, len(entries))
	return r
}

func (k *kit) isWhole(r wire.Result, entries int) {
	k.Helper()
	require.False(k, r.Skipped, "the run was skipped")
	require.False(k, r.Early, "entry %d ended early", int(r.Begun)-1)
	require.EqualValues(k, entries, r.Begun)
}

// isEarly holds that entry n ended early, and returns its report.
func (k *kit) isEarly(r wire.Result, n int, e host.Entry) instrument.Report {
	k.Helper()
	require.False(k, r.Skipped, "the run was skipped")
	require.True(k, r.Early, "no entry ended early; %d began", r.Begun)
	require.EqualValues(k, n+1, r.Begun)
	report, err := k.of(e).instrumented.Decode(r.Slot[:], e.Grid, lengths(e))
	require.NoError(k, err)
	require.NotEqual(k, instrument.Whole, report.End)
	return report
}

// isTrap holds that entry n trapped, as the lane engine says.
func (k *kit) isTrap(r wire.Result, n int, e host.Entry, want outcome.Trap) {
	k.Helper()
	report := k.isEarly(r, n, e)
	require.Equal(k, instrument.Trapped, report.End)
	require.Equal(k, want, report.Trap)
}

func (k *kit) isSkipped(r wire.Result) {
	k.Helper()
	require.True(k, r.Skipped, "the run was not skipped")
	require.False(k, r.Early)
	require.Zero(k, r.Begun)
}

// lengths are those of an entry's bindings in bytes.
func lengths(e host.Entry) []uint64 {
	var n []uint64
	for _, s := range e.Spans {
		n = append(n, s.Length)
	}
	return n
}
