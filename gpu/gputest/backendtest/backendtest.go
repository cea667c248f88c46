// Package backendtest is the suite that every backend.Backend must pass.
//
// It knows the contract of package backend and, for the built-in programs that a
// backend names as the mock device does (fill_u32, copy, vecadd_f32, saxpy_f32,
// matvec_f32, spin, trap), what they compute, against references too simple to be
// wrong. A test says what it needs of a backend beyond the contract. Those that need what
// it does not have are not run, and the caller of the suite names them: the suite fails
// when they are others.
//
// The device under test must be healthy. Tests with the mock's fault scripts show what a
// broken one does to the core.
package backendtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

// Harness is a fresh backend that was not started, closed by the test's cleanups
// at the latest.
type Harness struct {
	Backend backend.Backend
	// Alloc returns zeroed memory that the device reaches, until the test's
	// cleanups. Nil: sealed shared memory at addresses of the suite's choice.
	Alloc func(t *testing.T, bytes int) backend.Span
	// HoldBytes is the size of a fill that keeps the device busy for longer than it
	// takes to stop it. 0: it has the program spin, which never ends by itself.
	HoldBytes int
	// MaxBytes bounds what a test has a slow device move in one job. 0: no bound.
	MaxBytes int
	// MaxRounds bounds how often a test repeats itself on a slow device. 0: no bound.
	MaxRounds int
}

// Run runs the suite. inapplicable names the tests that this backend has not what they
// need for, as "Compute/Vecadd".
func Run(t *testing.T, open func(t *testing.T) Harness, inapplicable ...string) {
	has := properties(t, open)
	var left []string
	count := 0
	for _, group := range [...]struct {
		name  string
		tests []test
	}{
		{"Static", staticTests},
		{"Compute", computeTests},
		{"Trap", trapTests},
		{"Queue", queueTests},
		{"Reset", resetTests},
		{"Context", contextTests},
		{"Run", runTests},
		{"List", listTests},
		{"Local", localTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				count++
				if slices.ContainsFunc(test.needs, func(need string) bool { return !has[need] }) {
					left = append(left, group.name+"/"+test.name)
					continue
				}
				if test.long && has[slow] && testing.Short() {
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					h := open(t)
					d := &device{Backend: h.Backend, Harness: h, t: t, alloc: h.Alloc, sink: newSink()}
					t.Cleanup(func() { require.NoError(t, h.Backend.Close()) })
					if !test.unstarted {
						require.NoError(t, d.Start(d.sink))
					}
					test.run(t, d)
				})
			}
		})
	}
	require.ElementsMatch(t, inapplicable, left, "the tests that do not apply to this backend are others")
	if len(left) > 0 {
		t.Logf("%d of %d tests do not apply to this backend: %s", len(left), count, strings.Join(left, ", "))
	}
}

// A test may need these besides programs, which it names.
const (
	needsHold       = "hold"       // work that lasts until it is stopped
	needsAnyMemory  = "any memory" // a device that takes memory of the suite's own
	needsRuns       = "runs"       // a backend.Runner
	needsLists      = "lists"      // backend.Info.Lists
	needsContexts   = "contexts"   // a backend.ContextResetter
	needsPreemption = "preemption" // a backend.Preempter
	needsLocal      = "local"      // memory of its own
	slow            = "slow"       // not needed: long tests are left out with -test.short
)

// properties are what the backend has of that which tests need.
func properties(t *testing.T, open func(t *testing.T) Harness) map[string]bool {
	has := map[string]bool{}
	t.Run("Properties", func(t *testing.T) {
		h := open(t)
		defer func() { require.NoError(t, h.Backend.Close()) }()
		for _, name := range h.Backend.Programs() {
			has[name] = true
		}
		has[needsHold] = h.HoldBytes > 0 || has["spin"]
		has[needsAnyMemory] = h.Alloc == nil
		_, has[needsRuns] = h.Backend.(backend.Runner)
		_, has[needsContexts] = h.Backend.(backend.ContextResetter)
		_, has[needsPreemption] = h.Backend.(backend.Preempter)
		has[needsLocal] = h.Backend.Info().LocalBytes > 0
		has[needsLists] = h.Backend.Info().Lists
		has[slow] = h.MaxRounds > 0
	})
	return has
}

type test struct {
	name      string
	run       func(t *testing.T, d *device)
	needs     []string
	unstarted bool // the test starts the backend itself
	long      bool // on a slow device
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// device is the backend under test and what a core would keep about it.
type device struct {
	backend.Backend
	Harness Harness
	t       *testing.T
	alloc   func(t *testing.T, bytes int) backend.Span
	sink    *sink
	lastID  backend.JobID
	iova    uint64
	held    backend.Span // of hold
}

// span allocates device-visible memory that holds data.
func (d *device) span(data []byte) backend.Span {
	d.t.Helper()
	var s backend.Span
	if d.alloc != nil {
		s = d.alloc(d.t, len(data))
	} else {
		s = d.shared(len(data))
	}
	copy(s.Host, data)
	return s
}

// shared is sealed memory, as buffers of clients are.
func (d *device) shared(bytes int) backend.Span {
	d.t.Helper()
	m, err := shm.Create("backendtest", max(uint64(bytes), 1))
	require.NoError(d.t, err)
	host, err := m.Map(0, m.Size(), true)
	require.NoError(d.t, err)
	require.NoError(d.t, m.Close())
	d.t.Cleanup(func() { require.NoError(d.t, shm.Unmap(host)) })
	if d.iova == 0 {
		d.iova = 1 << 32
	}
	iova := d.iova
	d.iova += m.Size() + 4096
	return backend.Span{Host: host[:bytes:bytes], IOVA: iova}
}

// watched is memory in which the race detector sees an access that the device
// makes at the wrong time, if the device takes ordinary memory: the detector
// knows nothing of shared mappings.
func (d *device) watched(bytes int) backend.Span {
	if d.alloc != nil {
		return d.alloc(d.t, bytes)
	}
	return backend.Span{Host: make([]byte, bytes), IOVA: 1 << 40}
}

// most is n bytes, or as many as the device can be asked for.
func (d *device) most(n int) int {
	if d.Harness.MaxBytes > 0 {
		return min(n, d.Harness.MaxBytes)
	}
	return n
}

// rounds is n, or as often as the device can be asked.
func (d *device) rounds(n int) int {
	if d.Harness.MaxRounds > 0 {
		return min(n, d.Harness.MaxRounds)
	}
	return n
}

// id is a new job's.
func (d *device) id() backend.JobID {
	d.lastID++
	return d.lastID
}

// program returns a built-in program. A test that needs one says so.
func (d *device) program(t *testing.T, name string) backend.Program {
	t.Helper()
	p, err := d.Builtin(name)
	require.NoError(t, err)
	return p
}

// simple is a program that does nothing where its bindings have nothing: fill_u32, or
// the first that there is.
func (d *device) simple(t *testing.T) backend.Program {
	t.Helper()
	name := "fill_u32"
	if !slices.Contains(d.Programs(), name) {
		name = d.Programs()[0]
	}
	return d.program(t, name)
}

// launch is a job of a program in its natural grid.
func (d *device) launch(p backend.Program, inline []byte, spans ...backend.Span) *backend.Job {
	sizes := make([]uint64, len(spans))
	for i, s := range spans {
		sizes[i] = uint64(len(s.Host))
	}
	grid, block := p.Info().NaturalGrid(sizes)
	return &backend.Job{ID: d.id(), Op: backend.OpLaunch, Program: p, Grid: grid, Block: block, Spans: spans, Inline: inline}
}

// run submits a job and waits for its outcome.
func (d *device) run(job *backend.Job) outcome.Outcome {
	d.t.Helper()
	require.NoError(d.t, d.Submit(job))
	return d.sink.wait(d.t, job.ID).Outcome
}

// reset resets, which a healthy device can always do.
func (d *device) reset() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	require.NoError(d.t, d.Reset(ctx))
}

// sink keeps every completion.
type sink struct {
	mu      sync.Mutex
	order   []backend.Completion
	byID    map[backend.JobID][]backend.Completion
	gone    []string
	lost    []uint32      // groups
	changed chan struct{} // closed and renewed at each change
}

func newSink() *sink {
	return &sink{byID: map[backend.JobID][]backend.Completion{}, changed: make(chan struct{})}
}

// Complete implements backend.Sink.
func (s *sink) Complete(c backend.Completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, c)
	s.byID[c.ID] = append(s.byID[c.ID], c)
	close(s.changed)
	s.changed = make(chan struct{})
}

// DeviceGone implements backend.Sink.
func (s *sink) DeviceGone(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, reason)
}

// LocalLost implements backend.LocalSink.
func (s *sink) LocalLost(group uint32, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, group)
}

// lostGroups are the groups that have lost local memory.
func (s *sink) lostGroups() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

func (s *sink) look(id backend.JobID) (list []backend.Completion, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id], s.changed
}

// wait returns the completion of a job.
func (s *sink) wait(t *testing.T, id backend.JobID) backend.Completion {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		list, changed := s.look(id)
		if len(list) > 0 {
			return list[0]
		}
		select {
		case <-changed:
		case <-deadline.C:
			require.FailNow(t, "no completion", "job %d", id)
		}
	}
}

// ids lists the completed jobs in order.
func (s *sink) ids() []backend.JobID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]backend.JobID, len(s.order))
	for i, c := range s.order {
		ids[i] = c.ID
	}
	return ids
}

// onceEach requires that no job was completed twice and the device never left.
func (s *sink) onceEach(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, list := range s.byID {
		require.Len(t, list, 1, "completions of job %d", id)
	}
	require.Empty(t, s.gone)
}

// refused requires the code of a Submit that must not be taken.
func refused(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.Contains(t, []gpuerr.Code{gpuerr.Invalid, gpuerr.LaunchLimit}, gpuerr.CodeOf(err), "%v", err)
}
