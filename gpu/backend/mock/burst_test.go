package mock_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpu/gputest/backendtest"
)

// Two devices get the same jobs on the same memory: one by Submit, one at a time, the
// other in bursts, and by Submit what a burst leaves. Memory, outcomes, contexts and
// logs are the same.

const (
	arenaBytes = 256 << 10
	pageBytes  = 4096
	contexts   = 3
)

// twin is one of the two.
type twin struct {
	*mock.Device
	recorder
	t        *testing.T
	arena    []byte
	contexts [contexts]*backend.Context
	programs map[string]backend.Program

	// Of the one with bursts.
	held   backendtest.Held
	spare  []backend.Ready
	ran    int // jobs in bursts
	bursts int
}

// spec is a job, told without memory of either.
type spec struct {
	op       backend.Op
	program  string
	spans    [][2]int // of the arena: offset and length
	inline   []byte
	grid     backend.Dim3
	context  int
	pattern  uint32
	check    bool
	repeated int // so often in a row
}

func newTwin(t *testing.T, o mock.Options) *twin {
	d, err := mock.New(o)
	require.NoError(t, err)
	w := &twin{Device: d, t: t, programs: map[string]backend.Program{}, held: backendtest.Held{Holder: d}}
	mapped, err := unix.Mmap(-1, 0, 2*arenaBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.NoError(t, unix.Munmap(mapped))
	})
	// At a multiple of its size: what is written before memory is found gone depends on how the
	// address lies to what the kernel maps at a time.
	at := -reflect.ValueOf(mapped).Pointer() % arenaBytes
	w.arena = mapped[at : at+arenaBytes : at+arenaBytes]
	r := rand.New(rand.NewPCG(5, 5))
	for i := 0; i < arenaBytes; i += 4 {
		v := r.Uint32N(0x60) + 0x3f80 // floats of some size; as words some are small
		if r.IntN(4) == 0 {
			binary.LittleEndian.PutUint32(w.arena[i:], r.Uint32N(40))
			continue
		}
		binary.LittleEndian.PutUint32(w.arena[i:], v<<16)
	}
	for i := range w.contexts {
		w.contexts[i] = new(backend.Context)
	}
	for _, name := range []string{"steady", "race"} {
		module, err := os.ReadFile("testdata/" + name + ".spv")
		require.NoError(t, err)
		w.programs[name], err = d.Load(t.Context(), module)
		require.NoError(t, err)
	}
	for _, name := range []string{"copy", "fill_u32", "vecadd_f32", "saxpy_f32", "matvec_f32", "rmsnorm_f32", "softmax_f32", "reduce_f32", "embed_f32", "argmax_f32", "trap"} {
		w.programs[name], err = d.Builtin(name)
		require.NoError(t, err)
	}
	require.NoError(t, d.Start(&w.recorder))
	return w
}

// job makes a job of a spec.
func (w *twin) job(s *spec) *backend.Job {
	j := &backend.Job{Op: s.op, Inline: s.inline, Pattern: s.pattern, Check: s.check}
	if s.context >= 0 {
		j.Context = w.contexts[s.context]
	}
	for _, at := range s.spans {
		j.Spans = append(j.Spans, backend.Span{Host: w.arena[at[0] : at[0]+at[1] : at[0]+at[1]], IOVA: 1<<32 + uint64(at[0])})
	}
	if s.op == backend.OpLaunch {
		j.Program = w.programs[s.program]
		j.Grid, j.Block = s.grid, j.Program.Info().Block
	}
	return j
}

// draw makes a job up.
func draw(r *rand.Rand) *spec {
	s := &spec{context: r.IntN(contexts+1) - 1, pattern: r.Uint32(), grid: backend.Dim3{X: 1 + r.Uint32N(3), Y: 1, Z: 1}, repeated: 1 + r.IntN(2)*r.IntN(9)}
	span := func(most int) [2]int {
		n := 4 * r.IntN(most/4)
		at := 4 * r.IntN((arenaBytes-n)/4)
		if r.IntN(40) == 0 && n > 4 {
			return [2]int{at + 1, n - 4 + r.IntN(3)}
		}
		return [2]int{at, n}
	}
	most := []int{64, 4096, 40 << 10, 100 << 10}[r.IntN(4)]
	words := func(n ...uint32) {
		for _, v := range n {
			s.inline = binary.LittleEndian.AppendUint32(s.inline, v)
		}
	}
	switch s.op = backend.Op(1 + r.IntN(3)); s.op {
	case backend.OpFill:
		s.spans = append(s.spans, span(most))
		return s
	case backend.OpCopy:
		a, b := span(most), span(most)
		b[1] = a[1]
		b[0] = min(b[0], arenaBytes-b[1])
		s.spans = append(s.spans, a, b)
		return s
	}
	names := []string{"copy", "fill_u32", "vecadd_f32", "saxpy_f32", "matvec_f32", "rmsnorm_f32", "softmax_f32", "reduce_f32", "embed_f32", "argmax_f32", "trap", "steady", "steady", "steady", "race"}
	s.program = names[r.IntN(len(names))]
	s.check = r.IntN(30) == 0
	count := 2
	switch s.program {
	case "fill_u32":
		count = 1
		words(r.Uint32())
	case "vecadd_f32":
		count = 3
	case "saxpy_f32":
		words(0x3f000000)
	case "matvec_f32":
		count = 3
		words(r.Uint32N(9), r.Uint32N(40))
	case "rmsnorm_f32":
		count = 3
		words(r.Uint32N(40), 0x3727c5ac)
	case "softmax_f32":
		words(r.Uint32N(40))
	case "embed_f32":
		count = 3
		words(r.Uint32N(20))
	case "steady":
		words(r.Uint32N(50))
	case "trap", "race":
		count = 1
	}
	for range count {
		s.spans = append(s.spans, span(most))
	}
	if r.IntN(4) == 0 { // in place, or bound twice
		s.spans[count-1] = s.spans[r.IntN(count)]
	}
	return s
}

// submit runs a job by Submit to its end, or as far as its fault admits.
func (w *twin) submit(id backend.JobID, job *backend.Job) {
	job.ID = id
	if err := w.Submit(job); err != nil {
		w.mu.Lock()
		w.told = append(w.told, fmt.Sprintf("%d refused", id))
		w.mu.Unlock()
		return
	}
	synctest.Wait()
	time.Sleep(10 * time.Millisecond) // what is slow
	synctest.Wait()
	if log, _ := w.Log(); len(log) > 0 && log[len(log)-1].End == mock.Outstanding {
		require.NoError(w.t, w.Reset(w.t.Context()))
	}
	job.ID = 0
}

// play runs a sequence, in bursts where a burst takes it.
func (w *twin) play(r *rand.Rand, id backend.JobID, specs []*spec) {
	var batch []backend.Ready
	var jobs []*backend.Job
	ends := make([]backend.End, 256)
	flush := func() {
		for len(batch) > 0 {
			burst := w.Burst
			if r.IntN(2) == 0 { // by who holds the device, if nobody looks on
				burst = w.held.Burst
			}
			n := burst(id, batch, ends)
			if n > 0 {
				w.bursts++
			}
			w.ran += n
			w.mu.Lock()
			for i, e := range ends[:n] {
				w.told = append(w.told, fmt.Sprintf("%d %v", id+backend.JobID(i), e.Outcome))
				require.GreaterOrEqual(w.t, e.DeviceTime, time.Duration(0))
			}
			w.mu.Unlock()
			id += backend.JobID(n)
			batch, jobs = batch[n:], jobs[n:]
			if len(batch) > 0 {
				w.submit(id, jobs[0])
				id++
				batch, jobs = batch[1:], jobs[1:]
			}
		}
	}
	for _, s := range specs {
		job := w.job(s)
		var old backend.Ready
		if len(w.spare) > 0 && len(batch) == 0 {
			old = w.spare[0]
		}
		ready, nanos, ok := w.Prepare(job, old)
		for range s.repeated {
			if !ok {
				flush()
				w.submit(id, job)
				id++
				continue
			}
			require.Positive(w.t, nanos)
			require.LessOrEqual(w.t, nanos, int64(backend.MaxBurstJob))
			batch, jobs = append(batch, ready), append(jobs, job)
			if r.IntN(12) == 0 {
				flush()
			}
		}
		if ok {
			w.spare = append(w.spare[:0], ready)
		}
		if len(batch) > 0 && batch[0] == old {
			w.spare = nil
		}
	}
	flush()
}

func TestBurstIsAsSubmit(t *testing.T) {
	every := []mock.Fault{
		{Kind: mock.FaultErrorCompletion, Op: "fill", Probability: 0.1},
		{Kind: mock.FaultSlow, Duration: mock.Duration(time.Millisecond), Op: "copy", Probability: 0.2},
		{Kind: mock.FaultDuplicateCompletion, Job: 7},
		{Kind: mock.FaultStrayDMA, Program: "vecadd_f32", Times: 3},
		{Kind: mock.FaultWrongWritePointer, Job: 90},
		{Kind: mock.FaultLostCompletion, Job: 120},
		{Kind: mock.FaultLateCompletion, Job: 130},
		{Kind: mock.FaultHang, Job: 150},
		{Kind: mock.FaultWrongJobID, Job: 160},
	}
	seeds := uint64(12)
	if raceEnabled {
		seeds = 3
	}
	for name, c := range map[string]struct {
		o     mock.Options
		least float64 // share of jobs that bursts run
	}{
		"healthy":   {mock.Options{Workers: 1}, 0.5},
		"log":       {mock.Options{Workers: 1, LogEntries: 4096}, 0.5},
		"lanes":     {mock.Options{Workers: 1, LaneOnly: true, LogEntries: 4096}, 0.4},
		"script":    {mock.Options{Workers: 1, LogEntries: 4096, Script: mock.Script{Seed: 3, Faults: every}}, 0.05},
		"one fault": {mock.Options{Workers: 1, LogEntries: 4096, Script: mock.Script{Faults: every[2:]}}, 0.4},
		"gone":      {mock.Options{Workers: 1, LogEntries: 4096, Script: mock.Script{Faults: []mock.Fault{{Kind: mock.FaultDeviceGone, Job: 60}}}}, 0.01},
		"digests":   {mock.Options{Workers: 1, LogEntries: 4096, LogDigests: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := seeds
			if raceEnabled && c.o.LaneOnly {
				seeds = 1
			}
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) { testTwins(t, c.o, seed, c.least) })
			}
		})
	}
}

func testTwins(t *testing.T, o mock.Options, seed uint64, least float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	slow, quick := newTwin(t, o), newTwin(t, o)
	id, total := backend.JobID(1), 0
	for round := range 30 {
		var specs []*spec
		n := 0
		for range 1 + r.IntN(8) {
			s := draw(r)
			specs = append(specs, s)
			n += s.repeated
		}
		total += n
		at := id
		for _, s := range specs {
			for range s.repeated {
				slow.submit(at, slow.job(s))
				at++
			}
		}
		quick.play(r, id, specs)
		id += backend.JobID(n)
		synctest.Wait()
		require.Equal(t, slow.told, quick.told, "seed %d round %d: %+v", seed, round, specs)
		slow.told, quick.told = nil, nil
		for i := range slow.contexts {
			require.Equal(t, slow.contexts[i].Trapped(), quick.contexts[i].Trapped(), "seed %d round %d", seed, round)
			if slow.contexts[i].Trapped() && r.IntN(2) == 0 {
				slow.contexts[i], quick.contexts[i] = new(backend.Context), new(backend.Context)
			}
		}
		protect(t, unix.PROT_READ|unix.PROT_WRITE, 0, arenaBytes, slow, quick)
		require.True(t, bytes.Equal(slow.arena, quick.arena), "seed %d round %d", seed, round)
		if r.IntN(3) == 0 { // memory that has gone
			hole := r.IntN(arenaBytes/pageBytes - 8)
			protect(t, unix.PROT_NONE, hole*pageBytes, (1+r.IntN(8))*pageBytes, slow, quick)
		}
	}
	want, _ := slow.Log()
	got, _ := quick.Log()
	require.Len(t, got, len(want))
	for i := range want {
		w, g := want[i], got[i]
		w.StartedAt, w.EndedAt, g.StartedAt, g.EndedAt = 0, 0, 0, 0 // the one sleeps where the other does not
		require.Equal(t, w, g, "seed %d", seed)
		require.LessOrEqual(t, got[i].StartedAt, got[i].EndedAt)
		if i > 0 && got[i].Started && got[i-1].End == mock.Finished {
			require.LessOrEqual(t, got[i-1].EndedAt, got[i].StartedAt)
		}
	}
	share := float64(quick.ran) / float64(total)
	require.GreaterOrEqual(t, share, least, "seed %d", seed)
	require.Zero(t, slow.ran)
	require.Equal(t, o.LogEntries > 0, quick.held.Jobs == 0, "seed %d: nobody holds what somebody looks on", seed)
}

func protect(t *testing.T, how, at, n int, of ...*twin) {
	for _, w := range of {
		require.NoError(t, unix.Mprotect(w.arena[at:at+n], how))
	}
}

func TestBurstsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, o := range map[string]mock.Options{"quiet": {}, "log": {LogEntries: 16}} {
		t.Run(name, func(t *testing.T) {
			d, s := started(t, o)
			span := func() backend.Span { return backend.Span{Host: make([]byte, 256)} }
			module, err := os.ReadFile("testdata/steady.spv")
			require.NoError(t, err)
			steady, err := d.Load(t.Context(), module)
			require.NoError(t, err)
			lanes := &backend.Job{ID: 1, Op: backend.OpLaunch, Program: steady, Grid: backend.Dim3{X: 1, Y: 1, Z: 1}, Block: steady.Info().Block, Inline: make([]byte, 4), Spans: []backend.Span{span(), span()}}
			require.NoError(t, d.Submit(lanes))
			<-s.done
			all := []*backend.Job{
				lanes,
				{Op: backend.OpFill, Spans: []backend.Span{span()}},
				{Op: backend.OpCopy, Spans: []backend.Span{span(), span()}},
				launch(t, d, "vecadd_f32", nil, span(), span(), span()),
				launch(t, d, "matvec_f32", binary.LittleEndian.AppendUint64(nil, 4|4<<32), span(), span(), span()),
			}
			jobs, ends := make([]backend.Ready, len(all)), make([]backend.End, len(all))
			require.Zero(t, testing.AllocsPerRun(100, func() {
				for i, job := range all {
					var ok bool
					if jobs[i], _, ok = d.Prepare(job, jobs[i]); !ok {
						t.Fatal("not fit")
					}
				}
				for rest := jobs; len(rest) > 0; { // a busy host makes it short
					n := d.Burst(1, rest, ends)
					if n == 0 {
						t.Fatal("declined")
					}
					rest = rest[n:]
				}
			}))
		})
	}
}
