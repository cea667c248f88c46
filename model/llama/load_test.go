package llama

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
)

// used is a session's charges for everything that comes back when freed.
// Descriptors are left out: a session keeps a little memory for its next buffer.
func used(t testing.TB, s *client.Session) map[string]uint64 {
	t.Helper()
	entries, err := s.Budget(context.Background())
	require.NoError(t, err)
	all := map[string]uint64{}
	for _, e := range entries {
		if e.Resource != "auditBytes" && e.Resource != "deviceTime" && e.Resource != "descriptors" && e.Used != 0 {
			all[e.Resource] = e.Used
		}
	}
	return all
}

func restrict(t testing.TB, s *client.Session, p client.Policy) *client.Session {
	t.Helper()
	p.Facet = client.FacetFull
	child, err := s.Restrict(testContext(t), p)
	require.NoError(t, err)
	t.Cleanup(func() { child.Close(context.Background()) })
	return child
}

// A model takes exactly what Plan returns, and gives all of it back.
func TestLoadMatchesPlan(t *testing.T) {
	for _, types := range [][]model.Type{{model.F32}, {model.I8}, {model.Q8_0, model.F16, model.F32}} {
		f := seeded(4, shape(), false, types...)
		s := open(t, mock.Options{})
		before := used(t, s)
		o := Options{Sequences: 3, Batch: 5, PagePositions: 8}
		size, err := Plan(f, o)
		require.NoError(t, err)
		var done, total uint64
		o.Progress = func(d, of uint64) {
			require.GreaterOrEqual(t, d, done)
			done, total = d, of
		}

		m, err := Load(testContext(t), s, f, o)
		require.NoError(t, err)
		require.Equal(t, total, done)
		require.Equal(t, size, m.Info().Size)
		now := used(t, s)
		require.Equal(t, size.DeviceBytes()-size.LoadBytes, now["deviceMemory"]-before["deviceMemory"])
		require.EqualValues(t, size.Buffers, now["buffers"])
		require.EqualValues(t, size.Programs, now["programs"])
		require.EqualValues(t, size.QueueSlots, now["queueSlots"])
		require.LessOrEqual(t, size.HostBytes, now["hostMemory"]-before["hostMemory"])
		require.NoError(t, m.Close(testContext(t)))
		require.NoError(t, m.Close(testContext(t)))
		require.Equal(t, before, used(t, s))
		require.ErrorIs(t, m.Step(testContext(t), []Row{{}}), gpuerr.Closed)
		_, err = m.NewSequence()
		require.ErrorIs(t, err, gpuerr.Closed)
	}
}

// A tied classifier shares the memory of the embedding table.
func TestTiedIsThereOnce(t *testing.T) {
	tied, err := Plan(seeded(4, shape(), true, model.F32), Options{})
	require.NoError(t, err)
	untied, err := Plan(seeded(4, shape(), false, model.F32), Options{})
	require.NoError(t, err)
	table := uint64(131 * 64)
	require.Equal(t, tied.Parameters+table, untied.Parameters)
	require.InDelta(t, tied.WeightBytes+4*table, untied.WeightBytes, chargeBytes)
}

// If a session lacks anything, by however little, the load fails, reports the
// requested and the available amount, and leaves nothing.
func TestLoadIsShortOf(t *testing.T) {
	f := seeded(4, shape(), false, model.F32, model.Q8_0)
	o := Options{Sequences: 2, Batch: 3}
	s := open(t, mock.Options{})
	m, err := Load(testContext(t), s, f, o)
	require.NoError(t, err)
	size, enough := m.Info().Size, used(t, s)
	require.NoError(t, m.Close(testContext(t)))
	enough["deviceMemory"] += size.LoadBytes
	enough["buffers"]++ // of a recording
	enough["iovaEntries"]++
	o.Positions = size.Positions // a smaller cache does not help
	for resource, n := range enough {
		step := uint64(1)
		if n > 1000 {
			step = n/23 + 1
		}

		short := []uint64{n - 1}
		for k := uint64(0); k < n-1; k += step {
			short = append(short, k)
		}

		for _, limit := range short {
			if resource == "sessions" || resource == "queueSlots" && limit == 0 {
				continue
			}

			child := restrict(t, s, client.Policy{Limits: map[string]uint64{resource: limit}})
			before := used(t, child)
			copied := false
			short := o
			short.Progress = func(done, _ uint64) { copied = copied || done > 0 }
			_, err := Load(testContext(t), child, f, short)
			require.ErrorIs(t, err, gpuerr.Quota, "%s %d of %d", resource, limit, n)
			e := gpuerr.From(err)
			require.Equal(t, resource, e.Resource)
			require.Greater(t, e.Asked, e.Available, "%s %d of %d: %v", resource, limit, n, err)
			require.False(t, copied)
			require.Equal(t, before, used(t, child), "%s %d of %d", resource, limit, n)
			require.NoError(t, child.Close(testContext(t)))
		}

		child := restrict(t, s, client.Policy{Limits: map[string]uint64{resource: n}})
		m, err := Load(testContext(t), child, f, o)
		require.NoError(t, err, "%s %d", resource, n)
		require.NoError(t, m.Close(testContext(t)))
	}
}

// A cache that leaves its size to the budget takes all of it, to the page.
func TestCacheFillsTheBudget(t *testing.T) {
	c := shape()
	c.Context = 600
	f := seeded(4, c, true, model.F32)
	o := Options{Sequences: 4, Batch: 2, PagePositions: 16}
	s := open(t, mock.Options{})
	all, err := Plan(f, o)
	require.NoError(t, err)
	require.Equal(t, 4*38, all.Pages) // 600 positions are 37.5 pages
	o.Positions = 512
	least, err := Plan(f, o)
	require.NoError(t, err)
	o.Positions = 0
	page := 2 * uint64(c.Layers*c.KVHeads*c.HeadDim) * 4 * 16
	for _, limit := range []uint64{least.DeviceBytes() - 1, least.DeviceBytes(), least.DeviceBytes() + 3*page, least.DeviceBytes() + 77*page/2, all.DeviceBytes(), all.DeviceBytes() * 2} {
		child := restrict(t, s, client.Policy{Limits: map[string]uint64{"deviceMemory": limit}})
		m, err := Load(testContext(t), child, f, o)
		if limit < least.DeviceBytes() {
			require.ErrorIs(t, err, gpuerr.Quota)
			require.Equal(t, least.DeviceBytes(), gpuerr.From(err).Asked)
			require.Equal(t, limit, gpuerr.From(err).Available)
			continue
		}
		require.NoError(t, err)
		info := m.Info()
		require.LessOrEqual(t, info.DeviceBytes(), limit)
		if info.Pages < all.Pages {
			require.Greater(t, info.DeviceBytes()+page+2*chargeBytes, limit, "there was room for one more")
		}
		require.NoError(t, m.Close(testContext(t)))
	}
}

// A session's parent may have less than the session reports; a cache of a fixed
// size is then refused before anything is copied.
func TestTenantHasLessThanTheSession(t *testing.T) {
	c := shape()
	c.Context = 2000
	f := seeded(4, c, true, model.F32)
	o := Options{Sequences: 8, Batch: 2}
	s := open(t, mock.Options{})
	parent := restrict(t, s, client.Policy{Limits: map[string]uint64{"deviceMemory": 8 << 20}})
	one, other := restrict(t, parent, client.Policy{}), restrict(t, parent, client.Policy{})
	_, err := other.CreateBuffer(testContext(t), 3<<20, client.Storage)
	require.NoError(t, err)
	before := used(t, one)
	m, err := Load(testContext(t), one, f, o)
	require.NoError(t, err)
	info := m.Info()
	require.LessOrEqual(t, info.DeviceBytes(), uint64(5<<20))
	require.Greater(t, info.DeviceBytes(), uint64(5<<20)-256<<10)
	alone(t, m, []int32{1, 2, 3})
	require.NoError(t, m.Close(testContext(t)))
	require.Equal(t, before, used(t, one))

	o.Positions = 8 * 2000
	copied := false
	o.Progress = func(uint64, uint64) { copied = true }
	_, err = Load(testContext(t), one, f, o)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Greater(t, gpuerr.From(err).Asked, gpuerr.From(err).Available)
	require.False(t, copied)
	require.Equal(t, before, used(t, one))
}

// A buffer above the device's maximum is refused by name, and packs are smaller
// where buffers must be.
func TestLargestBuffer(t *testing.T) {
	f := seeded(4, shape(), false, model.F32)
	for _, most := range []uint64{1 << 12, 1 << 16, 1 << 18, 1 << 20} {
		s := sessiontest.Start(t, sessiontest.Options{Config: func(c *gpu.Config) { c.MaxBufferBytes = most }}).Open(t)
		o := Options{Sequences: 1, Batch: 1}
		m, err := Load(testContext(t), s, f, o)
		if most < 320*64*4 { // qkv is the largest
			require.ErrorIs(t, err, gpuerr.Invalid)
			require.ErrorContains(t, err, ": needs a buffer")
			require.Empty(t, used(t, s)["buffers"])
			continue
		}

		require.NoError(t, err)
		for _, b := range m.b.Buffers {
			require.LessOrEqual(t, b.Bytes, most)
		}

		require.Equal(t, most < 1<<20, len(m.b.Buffers) > 4)
		got := alone(t, m, []int32{1, 2, 3})
		require.NoError(t, m.Close(testContext(t)))

		s = open(t, mock.Options{})
		require.Equal(t, alone(t, load(t, s, f, o), []int32{1, 2, 3}), got)
	}
}

// A load that is cancelled stops at its next check, wherever that is.
func TestLoadIsCancelled(t *testing.T) {
	f := seeded(4, shape(), false, model.F32)
	s := open(t, mock.Options{})
	before := used(t, s)
	looks := 0 // the number of checks is the same each time
	load(t, s, f, Options{Progress: func(uint64, uint64) { looks++ }})
	for stop := 1; stop < looks; stop++ {
		s := open(t, mock.Options{})
		ctx, cancel := context.WithCancel(testContext(t))
		n := 0
		_, err := Load(ctx, s, f, Options{Progress: func(uint64, uint64) {
			if n++; n == stop {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, before, used(t, s))
		cancel()
	}

	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := Load(ctx, s, f, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

// A file that becomes shorter while it is copied is an error.
func TestFileIsTruncated(t *testing.T) {
	f := seeded(4, shape(), false, model.F32)
	path := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(path, f.Weights.Output.Data, 0o600))
	file, err := mapped.Open(path)
	require.NoError(t, err)
	defer file.Close()

	f.Weights.Output.Data = file.Bytes()
	s := open(t, mock.Options{})
	before := used(t, s)
	_, err = Load(testContext(t), s, f, Options{Progress: func(done, _ uint64) {
		if done == 0 {
			require.NoError(t, os.Truncate(path, 4096))
		}
	}})
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "shorter")
	require.Equal(t, before, used(t, s))
}

// An error in a file is reported by name, before anything is requested.
func TestFileIsWrong(t *testing.T) {
	for want, spoil := range map[string]func(*model.File){
		"kvHeads: ":                  func(f *model.File) { f.Config.KVHeads = 4 },
		"layers: the weights have 1": func(f *model.File) { f.Weights.Layers = f.Weights.Layers[1:] },
		"layers.1.gate: has 95×64":   func(f *model.File) { f.Weights.Layers[1].Gate.Rows-- },
		"layers.0.down: has 64×97":   func(f *model.File) { f.Weights.Layers[0].Down.Cols++ },
		"embed: has 33535 bytes":     func(f *model.File) { f.Weights.Embed.Data = f.Weights.Embed.Data[1:] },
		"norm: is of type f16":       func(f *model.File) { f.Weights.Norm.Type, f.Weights.Norm.Data = model.F16, make([]byte, 128) },
		"layers.1.k: type 99":        func(f *model.File) { f.Weights.Layers[1].K.Type = 99 },
		"ropeFactors: has 1×3":       func(f *model.File) { f.Weights.RopeFactors = model.Tensor{Rows: 1, Cols: 3, Data: make([]byte, 12)} },
		"ropeFactors: element 0 is 0": func(f *model.File) {
			f.Weights.RopeFactors = model.Tensor{Rows: 1, Cols: 16, Data: make([]byte, 64)}
		},
		"layers.0.q: groups of 33": func(f *model.File) {
			f.Weights.Layers[0].Q = model.Tensor{Type: model.I8, Rows: 192, Cols: 64, Data: make([]byte, 192*64), Group: 33}
		},
		"layers.0.q: has 4 bytes of scales": func(f *model.File) {
			f.Weights.Layers[0].Q = model.Tensor{Type: model.I8, Rows: 192, Cols: 64, Data: make([]byte, 192*64), Group: 64, Scales: make([]byte, 4)}
		},
	} {
		f := seeded(4, shape(), false, model.F32)
		spoil(f)
		_, err := Plan(f, Options{})
		require.ErrorIs(t, err, gpuerr.Invalid, want)
		require.ErrorContains(t, err, want)
	}

	f := seeded(4, shape(), false, model.F32)
	f.Config.Dim, f.Config.Hidden = 48, 48
	f.Weights.Embed = model.Tensor{Type: model.Q8_0, Rows: 131, Cols: 48, Data: make([]byte, 131*51)}
	_, err := Plan(f, Options{})
	require.ErrorContains(t, err, "embed: rows of 48 elements are not whole blocks of 32")
}

func TestOptions(t *testing.T) {
	f := seeded(4, shape(), false, model.F32)
	for want, o := range map[string]Options{
		"sequences: -1":    {Sequences: -1},
		"sequences: 1025":  {Sequences: 1025},
		"context: 81":      {Context: 81},
		"batch: 513":       {Batch: 513},
		"pagePositions: 3": {PagePositions: 3},
		"positions: 193":   {Sequences: 2, Positions: 193},
		"positions: -1":    {Positions: -1},
	} {
		_, err := Plan(f, o)
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, want)
	}

	for batch, want := range map[int][]int{1: {1}, 2: {1, 2}, 3: {1, 2, 3}, 7: {1, 2, 3, 4, 6, 7}, 32: {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}} {
		require.Equal(t, want, batchSizes(batch))
		r := routines{sizes: want}
		for n := 1; n <= batch; n++ {
			i := r.sizeFor(n)
			require.GreaterOrEqual(t, want[i], n)
			require.True(t, i == 0 || want[i-1] < n)
		}
	}
}

// A device with memory of its own has in it all that the client never looks at, and the same
// text comes of it.
func TestDiscreteDevice(t *testing.T) {
	f := seeded(4, shape(), false, model.F32)
	o := Options{Batch: 4, Sequences: 2, Positions: 64}
	tokens := []int32{1, 2, 3, 5}
	want := alone(t, load(t, open(t, mock.Options{}), f, o), tokens)

	s := open(t, mock.Options{LocalBytes: 64 << 20})
	before := used(t, s)
	m := load(t, s, f, o)
	size, now := m.size, used(t, s)
	require.Equal(t, size.WeightBytes+size.CacheBytes+size.WorkBytes, now["deviceMemory"]-before["deviceMemory"])
	require.Equal(t, size.DeviceBytes(), now["deviceMemory"]-before["deviceMemory"])
	require.Equal(t, want, alone(t, m, tokens))
	require.NoError(t, m.Close(testContext(t)))
	require.Equal(t, before, used(t, s))

	// Either kind of memory is refused before anything is copied.
	for _, resource := range []string{"deviceMemory", "hostMemory"} {
		_, err := Load(testContext(t), restrict(t, s, client.Policy{Limits: map[string]uint64{resource: 4096}}), f, o)
		require.ErrorIs(t, err, gpuerr.Quota)
		require.Equal(t, resource, gpuerr.From(err).Resource)
	}
}
