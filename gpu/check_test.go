package gpu

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestLaunchLimits(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	b, p := buf(t, s, 4096), prog(t, s, "p")
	q := r.queue(s, 16, 4096)
	bind := []ring.Binding{whole(b)}
	dim := func(x, y, z uint32) ring.Dim3 { return ring.Dim3{X: x, Y: y, Z: z} }
	one := dim(1, 1, 1)
	for name, tc := range map[string]struct {
		grid, block ring.Dim3
		shared      uint32
		bindings    []ring.Binding
		inline      []byte
		code        gpuerr.Code
	}{
		"natural":        {bindings: bind},
		"its block":      {grid: dim(3, 1, 1), bindings: bind},
		"smallest":       {grid: one, block: one, bindings: bind},
		"largest":        {grid: dim(1024, 1024, 1024), block: dim(256, 1, 1), shared: 512, bindings: bind},
		"grid":           {grid: dim(1025, 1, 1), block: one, bindings: bind, code: gpuerr.LaunchLimit},
		"grid z":         {grid: dim(1, 1, math.MaxUint32), block: one, bindings: bind, code: gpuerr.LaunchLimit},
		"block":          {grid: one, block: dim(257, 1, 1), bindings: bind, code: gpuerr.LaunchLimit},
		"threads":        {grid: one, block: dim(16, 16, 2), bindings: bind, code: gpuerr.LaunchLimit},
		"threads wrap":   {grid: one, block: dim(65535, 65535, 65535), bindings: bind, code: gpuerr.LaunchLimit},
		"shared":         {grid: one, block: one, shared: 513, bindings: bind, code: gpuerr.LaunchLimit},
		"shared wraps":   {grid: one, block: one, shared: math.MaxUint32, bindings: bind, code: gpuerr.LaunchLimit},
		"shared half":    {grid: one, block: one, shared: 6, bindings: bind, code: gpuerr.Invalid},
		"bindings":       {grid: one, block: one, bindings: []ring.Binding{bind[0], bind[0], bind[0], bind[0], bind[0]}, code: gpuerr.LaunchLimit},
		"inline":         {grid: one, block: one, bindings: bind, inline: make([]byte, 24), code: gpuerr.LaunchLimit},
		"binding count":  {grid: one, block: one, bindings: []ring.Binding{bind[0], bind[0]}, code: gpuerr.Invalid},
		"no binding":     {grid: one, block: one, code: gpuerr.Invalid},
		"inline it hasn": {grid: one, block: one, bindings: bind, inline: make([]byte, 8), code: gpuerr.Invalid},
		"zero block":     {grid: one, block: dim(1, 0, 1), bindings: bind, code: gpuerr.Invalid},
		"zero grid":      {grid: dim(0, 1, 1), block: one, bindings: bind, code: gpuerr.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			spent := s.Budget()[ledger.DeviceTime].Used
			q.push(ring.LaunchEntry(0, uint64(p), tc.grid, tc.block, tc.shared, 0), tc.bindings, tc.inline)
			c := q.one()
			if tc.code == gpuerr.None {
				requireOK(t, c)
				return
			}
			require.Equal(t, tc.code, c.Code)
			require.Equal(t, outcome.Failed, c.Outcome.Kind)
			require.Equal(t, tc.code == gpuerr.LaunchLimit, c.Outcome.Cause == outcome.LaunchLimit)
			require.Equal(t, spent, s.Budget()[ledger.DeviceTime].Used, "nothing is charged")
			require.Zero(t, s.Budget()[ledger.InFlight].Reserved)
		})
	}
	require.EqualValues(t, 4, s.launches.Load())
}

// A program that is made for one workgroup is launched with no other, and one
// without dynamic shared memory gets none.
func TestLaunchFitsTheProgram(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	hand.load = func(_ context.Context, bundle []byte) (backend.Program, error) {
		p := newLoaded(bundle)
		p.info.BlockFree, p.info.DynamicElementBytes = false, 0
		return p, nil
	}
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	p, _, err := load(s, 8, 1)
	require.NoError(t, err)
	bind := []ring.Binding{whole(buf(t, s, 4096))}
	q := r.queue(s, 16, 4096)
	one := ring.Dim3{X: 1, Y: 1, Z: 1}
	for _, tc := range []struct {
		block  ring.Dim3
		shared uint32
		code   gpuerr.Code
	}{
		{ring.Dim3{X: 32, Y: 1, Z: 1}, 0, gpuerr.None},
		{ring.Dim3{X: 1, Y: 32, Z: 1}, 0, gpuerr.LaunchLimit},
		{ring.Dim3{X: 16, Y: 1, Z: 1}, 0, gpuerr.LaunchLimit},
		{ring.Dim3{X: 32, Y: 1, Z: 1}, 4, gpuerr.Invalid},
	} {
		q.push(ring.LaunchEntry(0, uint64(p), one, tc.block, tc.shared, 0), bind, nil)
		require.Equal(t, tc.code, q.one().Code, "%+v", tc)
	}
	q.launch(p, bind...)
	requireOK(t, q.one())
	require.Equal(t, backend.Dim3{X: 32, Y: 1, Z: 1}, hand.jobs[1].Block, "its natural grid")
	require.False(t, hand.jobs[1].Check)

	checked, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits(), Check: true})
	require.NoError(t, err)
	below, err := checked.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.True(t, below.Describe().Checked)
	q = r.queue(below, 16, 4096)
	q.launch(prog(t, below, "p"), whole(buf(t, below, 4096)))
	requireOK(t, q.one())
	require.True(t, hand.jobs[2].Check)
}

func TestBounds(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newMemRig(t, withBackend(hand))
	s, other := r.open("alice"), r.open("bob")
	b, c, gone, p := buf(t, s, 8192), buf(t, s, 4096), buf(t, s, 4096), prog(t, s, "p")
	require.NoError(t, s.DestroyBuffer(gone))
	foreign := buf(t, other, 4096)
	f := newFence(t, s, 0)
	info, err := s.CreateBuffer(context.Background(), 4096, UsageUpload)
	require.NoError(t, err)
	upload := info.Handle
	q := r.queue(s, 64, 4096)
	top := uint64(math.MaxUint64) &^ 3
	cp := func(dst Handle, dOff uint64, src Handle, sOff, n uint64) func() {
		return func() { q.push(ring.CopyEntry(0, uint64(dst), dOff, uint64(src), sOff, n, 0), nil, nil) }
	}
	bind := func(h Handle, off, n uint64) func() {
		return func() { q.launch(p, ring.Binding{Buffer: uint64(h), Off: off, Len: n}) }
	}
	for name, tc := range map[string]struct {
		push func()
		code gpuerr.Code
	}{
		"fill all":            {func() { q.fill(b, 0, 8192, 1) }, 0},
		"fill end":            {func() { q.fill(b, 8188, 4, 1) }, 0},
		"fill beyond":         {func() { q.fill(b, 8188, 8, 1) }, gpuerr.Invalid},
		"fill at end":         {func() { q.fill(b, 8192, 4, 1) }, gpuerr.Invalid},
		"fill wraps":          {func() { q.fill(b, 4, top, 1) }, gpuerr.Invalid},
		"fill off wraps":      {func() { q.fill(b, top, 8, 1) }, gpuerr.Invalid},
		"fill 2^63":           {func() { q.fill(b, 1<<63, 1<<63, 1) }, gpuerr.Invalid},
		"fill misaligned":     {func() { q.fill(b, 2, 4, 1) }, gpuerr.Invalid},
		"fill odd":            {func() { q.fill(b, 0, 6, 1) }, gpuerr.Invalid},
		"fill nothing":        {func() { q.fill(b, 0, 0, 1) }, gpuerr.Invalid},
		"fill stale":          {func() { q.fill(gone, 0, 4, 1) }, gpuerr.Stale},
		"fill foreign":        {func() { q.fill(foreign, 0, 4, 1) }, gpuerr.Stale},
		"fill fence":          {func() { q.fill(f, 0, 4, 1) }, gpuerr.Stale},
		"fill never":          {func() { q.fill(math.MaxUint64, 0, 4, 1) }, gpuerr.Stale},
		"copy":                {cp(b, 0, c, 0, 4096), 0},
		"copy within":         {cp(b, 0, b, 4096, 4096), 0},
		"copy overlap":        {cp(b, 0, b, 4095, 4096), gpuerr.Invalid},
		"copy same":           {cp(b, 8, b, 8, 8), gpuerr.Invalid},
		"copy dst beyond":     {cp(c, 1, b, 0, 4096), gpuerr.Invalid},
		"copy src beyond":     {cp(b, 0, c, 1, 4096), gpuerr.Invalid},
		"copy wraps":          {cp(b, 8, c, 0, math.MaxUint64), gpuerr.Invalid},
		"copy src stale":      {cp(b, 0, gone, 0, 8), gpuerr.Stale},
		"copy dst foreign":    {cp(foreign, 0, b, 0, 8), gpuerr.Stale},
		"bind to end":         {bind(b, 4096, 0), 0},
		"bind part":           {bind(b, 4096, 4096), 0},
		"bind beyond":         {bind(b, 4096, 4100), gpuerr.Invalid},
		"bind at end":         {bind(b, 8192, 0), gpuerr.Invalid},
		"bind wraps":          {bind(b, 16, top), gpuerr.Invalid},
		"bind stale":          {bind(gone, 0, 0), gpuerr.Stale},
		"bind foreign":        {bind(foreign, 0, 0), gpuerr.Stale},
		"bind what is upload": {bind(upload, 0, 0), gpuerr.Invalid},
		"launch a buffer":     {func() { q.launch(b, whole(b)) }, gpuerr.Stale},
		"signal a buffer":     {func() { q.signal(b, 1) }, gpuerr.Stale},
		"signal back":         {func() { q.signal(f, 0) }, gpuerr.Invalid},
		"replay":              {func() { q.push(ring.Entry{Op: ring.OpReplay, Object: uint64(b)}, nil, nil) }, gpuerr.Stale},
	} {
		t.Run(name, func(t *testing.T) {
			tc.push()
			got := q.one()
			require.Equal(t, tc.code, got.Code)
			if tc.code == gpuerr.None {
				requireOK(t, got)
			} else {
				require.Equal(t, outcome.Failed, got.Outcome.Kind)
			}
		})
	}
	require.NoError(t, s.DestroyBuffer(b), "no pin was left behind")
	require.NoError(t, r.dev.Check())
}
