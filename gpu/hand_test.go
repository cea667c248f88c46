package gpu

import (
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	nouns "capgpu/program"
)

// handBackend is a device that makes no move but the test's.
type handBackend struct {
	limits   backend.Limits
	dma      bool
	verifies bool

	mu       sync.Mutex
	sink     backend.Sink
	jobs     []backend.Job // submitted, in order
	last     *backend.Job  // as it was given
	live     map[backend.JobID]bool
	cancels  []backend.JobID
	resets   int
	obedient bool  // completes what it is told to cancel
	resetErr error // what Reset answers
	refuse   error // what Submit answers
	auto     bool  // completes at once, within Submit
	arrived  chan struct{}
	load     func(ctx context.Context, bundle []byte) (backend.Program, error)
}

func newHandBackend() *handBackend {
	return &handBackend{
		limits: backend.Limits{MaxThreadsPerBlock: 256, MaxBlockDim: 256, MaxGridDim: 1024, MaxSharedBytes: 1024, MaxBindings: 4, MaxInlineBytes: 16, MaxJobs: 4, SubgroupSize: 32, CancelBound: 5 * time.Millisecond},
		live:   map[backend.JobID]bool{}, obedient: true, arrived: make(chan struct{}, 1),
	}
}

func (b *handBackend) Info() backend.Info {
	return backend.Info{Name: "hand", MemoryBytes: 1 << 30, Limits: b.limits, LoadsPrograms: true, DMA: b.dma, Verifies: b.verifies}
}
func (b *handBackend) Programs() []string { return []string{"p"} }
func (b *handBackend) Builtin(name string) (backend.Program, error) {
	if name != "p" {
		return nil, gpuerr.New(gpuerr.NoProgram, "no program %q", name)
	}
	return handProgram{}, nil
}
func (b *handBackend) Load(ctx context.Context, bundle []byte) (backend.Program, error) {
	if b.load != nil {
		return b.load(ctx, bundle)
	}
	return newLoaded(bundle), nil
}

// newLoaded is handProgram with the digest of a bundle.
func newLoaded(bundle []byte) *loadedProgram {
	p := &loadedProgram{info: handInfo}
	p.info.Digest = sha256.Sum256(bundle)
	return p
}

type loadedProgram struct {
	info     backend.ProgramInfo
	released atomic.Int32
}

func (p *loadedProgram) Release() { p.released.Add(1) }

func (p *loadedProgram) Info() *backend.ProgramInfo { return &p.info }

func (b *handBackend) Start(sink backend.Sink) error { b.sink = sink; return nil }

func (b *handBackend) Submit(j *backend.Job) error {
	b.mu.Lock()
	if b.refuse != nil {
		defer b.mu.Unlock()
		return b.refuse
	}
	b.jobs, b.last = append(b.jobs, *j), j
	id := j.ID
	auto := b.auto
	if !auto {
		b.live[id] = true
	}
	b.mu.Unlock()
	nudge(b.arrived)
	if auto {
		b.sink.Complete(backend.Completion{ID: id, Outcome: outcome.Success, DeviceTime: time.Microsecond})
	}
	return nil
}

func (b *handBackend) Cancel(id backend.JobID) {
	b.mu.Lock()
	b.cancels = append(b.cancels, id)
	tell := b.obedient && b.live[id]
	b.mu.Unlock()
	if tell {
		b.finish(id, outcome.Outcome{Kind: outcome.Cancelled}, 0)
	}
}

func (b *handBackend) Reset(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resets++
	if b.resetErr == nil {
		clear(b.live)
	}
	return b.resetErr
}

func (b *handBackend) Close() error { return nil }

func (b *handBackend) finish(id backend.JobID, how outcome.Outcome, took time.Duration) {
	b.mu.Lock()
	delete(b.live, id)
	b.mu.Unlock()
	b.sink.Complete(backend.Completion{ID: id, Outcome: how, DeviceTime: took})
}

// nth waits for the nth job (from 0) and returns its id.
func (b *handBackend) nth(t testing.TB, n int) backend.JobID {
	t.Helper()
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for {
		b.mu.Lock()
		if n < len(b.jobs) {
			id := b.jobs[n].ID
			b.mu.Unlock()
			return id
		}
		b.mu.Unlock()
		select {
		case <-b.arrived:
		case <-patience.C:
			require.FailNow(t, "the device was never given the job", "job %d", n)
		}
	}
}

// steppingBackend sees its jobs get on.
type steppingBackend struct {
	*handBackend
	steps atomic.Uint64
}

func (b *steppingBackend) Progress() uint64 { return b.steps.Load() }

// handProgram takes one buffer that it writes.
type handProgram struct{}

func (handProgram) Info() *backend.ProgramInfo { return &handInfo }

var handInfo = backend.ProgramInfo{
	Name: "p", Bindings: []backend.BindingInfo{{Name: "x", Access: backend.ReadWrite}}, SharedBytes: 512,
	DynamicElementBytes: 4, Block: nouns.Dim3{X: 32, Y: 1, Z: 1}, BlockFree: true, Grid: nouns.Grid{Groups: 1},
}

var (
	_ backend.Backend    = (*handBackend)(nil)
	_ backend.Progresser = (*steppingBackend)(nil)
)
