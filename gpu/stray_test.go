package gpu

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/outcome"
	"capgpu/ring"
)

// strayingBackend runs jobs in order. Some of them reach for what they were not
// granted: that is recorded before it says that they are done, as it always does.
type strayingBackend struct {
	*handBackend
	jobs chan backend.Job
	quit chan struct{}
	wg   sync.WaitGroup

	mu sync.Mutex
	// +checklocks:mu
	random *rand.Rand
	// +checklocks:mu
	records []Fault // not read yet
	// +checklocks:mu
	strayed map[uint32]bool // by pattern
	// +checklocks:mu
	epoch int // resets
}

func newStrayingBackend(seed uint64) *strayingBackend {
	b := &strayingBackend{
		handBackend: newHandBackend(), jobs: make(chan backend.Job, 64), quit: make(chan struct{}),
		random: rand.New(rand.NewPCG(seed, 0)), strayed: map[uint32]bool{},
	}
	b.dma = true
	return b
}

func (b *strayingBackend) Start(sink backend.Sink) error {
	b.sink = sink
	b.wg.Go(b.run)
	return nil
}

func (b *strayingBackend) Submit(j *backend.Job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := *j
	own.Spans = slices.Clone(j.Spans) // a reset may give the job's back before it is executed
	b.jobs <- own
	return nil
}

func (b *strayingBackend) Cancel(backend.JobID) {}

func (b *strayingBackend) Reset(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	for len(b.jobs) > 0 {
		<-b.jobs
	}
	return nil
}

func (b *strayingBackend) Close() error {
	close(b.quit)
	b.wg.Wait()
	return nil
}

func (b *strayingBackend) run() {
	for {
		select {
		case j := <-b.jobs:
			b.execute(j)
		case <-b.quit:
			return
		}
	}
}

func (b *strayingBackend) execute(j backend.Job) {
	b.mu.Lock()
	epoch := b.epoch
	switch b.random.IntN(20) {
	case 0: // nobody's address
		b.strayed[j.Pattern] = true
		b.records = append(b.records, Fault{IOVA: wild + b.random.Uint64N(1<<20), Count: 1})
	case 1: // behind what it was given
		b.strayed[j.Pattern] = true
		b.records = append(b.records, Fault{IOVA: j.Spans[0].IOVA + uint64(len(j.Spans[0].Host)), Write: true, Count: 1})
	}
	pause := time.Duration(b.random.IntN(50)) * time.Microsecond
	b.mu.Unlock()
	time.Sleep(pause)
	b.mu.Lock()
	late := b.epoch != epoch
	b.mu.Unlock()
	if !late {
		b.sink.Complete(backend.Completion{ID: j.ID, Outcome: outcome.Success, DeviceTime: time.Microsecond})
	}
}

// read is the manager's reading of the records, when it gets to it or is asked.
func (b *strayingBackend) read(d *Device) {
	b.mu.Lock()
	records := b.records
	b.records = nil
	b.mu.Unlock()
	for _, f := range records {
		d.Fault(f)
	}
}

// Whatever strays, when, and whenever that is noticed: no work that did is ever told to be
// ok, all ends once, and tenants that did not stray can go on.
func TestNeverOKIfItStrayed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	dev := newStrayingBackend(seed)
	var reading sync.Mutex // one reader of the records at a time, as the manager's is
	var r *rig
	settle := func(context.Context) (time.Duration, error) {
		reading.Lock()
		defer reading.Unlock()
		dev.read(r.dev)
		return math.MaxInt64, nil
	}
	r = newMemRig(t, withBackend(dev), func(c *Config, _ *fake.Options) {
		c.Settle, c.Strikes.Limit = settle, 1<<30
		c.DefaultDeadline, c.MaxDeadline = time.Minute, time.Minute // on the busiest host
	})
	ended := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { // unasked, now and then
		for !isClosed(ended) {
			time.Sleep(200 * time.Microsecond)
			_, _ = settle(context.Background())
		}
	})
	var clients sync.WaitGroup
	var mu sync.Mutex
	told := map[outcome.Outcome]int{}
	for c := range 3 {
		clients.Go(func() {
			tenant := string(rune('a' + c))
			s := r.open(tenant)
			b, q := buf(t, s, 4096), r.queue(s, 16, 0)
			for i := range 400 {
				pattern := uint32(c<<16 + i)
				q.push(ring.FillEntry(0, uint64(b), 0, 4096, pattern, 0), nil, nil)
				how := q.one().Outcome
				dev.mu.Lock()
				strayed := dev.strayed[pattern]
				dev.mu.Unlock()
				mu.Lock()
				told[how]++
				if strayed && how.Kind == outcome.OK {
					t.Errorf("work that strayed was told to be ok")
				}
				mu.Unlock()
				if s.Poisoned().Kind != outcome.Pending {
					_ = s.Close()
					s = r.open(tenant)
					b, q = buf(t, s, 4096), r.queue(s, 16, 0)
				}
			}
			_ = s.Close()
		})
	}
	clients.Wait()
	close(ended)
	reader.Wait()
	require.NoError(t, r.dev.Check())
	require.Greater(t, told[outcome.Success], 100)
	require.Greater(t, told[faultOutcome], 10)
	for how := range told {
		require.Contains(t, []outcome.Outcome{outcome.Success, faultOutcome, resetOutcome, poisonedOutcome}, how)
	}
	r.close()
}
