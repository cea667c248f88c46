package gpu

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
	"capgpu/ring"
)

func manyStrikes(c *Config, _ *fake.Options) { c.Strikes.Limit = math.MaxInt }

// A device that fails in every way it can: whatever is told to be ok was done.
func TestNeverFalselyOK(t *testing.T) {
	var faults []mock.Fault
	for _, k := range mock.FaultKinds() {
		if k != mock.FaultDeviceGone && k != mock.FaultHangForever && k != mock.FaultSlow {
			faults = append(faults, mock.Fault{Kind: k, Probability: 0.06})
		}
	}
	r := newMemRig(t, withScript(faults...), manyStrikes)
	s := r.open("alice")
	const words = 120
	b := buf(t, s, words*4)
	q := r.queue(s, 16, 0)
	ends := map[outcome.Kind]int{}
	for from := uint64(0); from < words; from += 8 {
		for i := from; i < from+8; i++ {
			q.push(ring.FillEntry(0, uint64(b), i*4, 4, uint32(i)+1, 20_000), nil, nil)
		}
		for k, c := range q.take(8) {
			i := from + uint64(k)
			ends[c.Outcome.Kind]++
			if c.Outcome.Kind == outcome.OK {
				require.EqualValues(t, i+1, binary.LittleEndian.Uint32(host(t, s, b)[i*4:]), "entry %d says ok", i)
			}
		}
	}
	require.Greater(t, ends[outcome.OK], words/10, "%v", ends)
	require.Greater(t, ends[outcome.TimedOut]+ends[outcome.Failed], 3, "%v", ends)
	r.idleButBuffers(s)
}

// One client hangs the device again and again; another, which asks again when it
// was innocent, gets all of its work done, and right.
func TestHappyBesideSad(t *testing.T) {
	const bad = 0xBAD0BAD0
	r := newMemRig(t, manyStrikes, withScript(mock.Fault{Kind: mock.FaultHang, Match: func(j *backend.Job) bool { return j.Pattern == bad }}))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		s := r.open("sad")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		for !isClosed(stop) {
			q.push(ring.FillEntry(0, uint64(b), 0, 4, bad, 2000), nil, nil)
			c := q.one()
			require.Contains(t, []outcome.Outcome{hangOutcome, resetOutcome}, c.Outcome)
		}
	})
	happy := r.open("happy")
	b, q := buf(t, happy, 4096), r.queue(happy, 16, 0)
	innocent := 0
	end := time.Now().Add(300 * time.Millisecond)
	for n := uint32(1); time.Now().Before(end); {
		q.fill(b, 0, 4096, n)
		c := q.one()
		if c.Outcome == resetOutcome {
			innocent++
			continue
		}
		requireOK(t, c)
		require.Equal(t, n, binary.LittleEndian.Uint32(host(t, happy, b)[4092:]))
		n++
	}
	close(stop)
	wg.Wait()
	require.Zero(t, r.dev.Status("happy").Tenants[0].Strikes)
	require.Positive(t, r.dev.Status("sad").Tenants[0].Strikes)
	t.Logf("innocent %d times", innocent)
}
