package vfio_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	uapi "capgpu/internal/uapi/vfio"
)

func TestWindows(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	require.Equal(t, r.options.Windows, f.Windows())
	require.NoError(t, f.Store32(0, 8188, 0x1234))
	v, err := f.Load32(0, 8188)
	require.NoError(t, err)
	require.EqualValues(t, 0x1234, v)
	for _, off := range []uint64{1, 8190, 8192, 1 << 63} {
		_, err := f.Load32(0, off)
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorIs(t, f.Store32(0, off, 1), gpuerr.Invalid)
	}
	for _, i := range []int{-1, 2} {
		_, err := f.Load32(i, 0)
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
	_, _, err = f.WindowFD(1)
	require.ErrorIs(t, err, gpuerr.Denied)
}

func TestWindowsThatAreRefused(t *testing.T) {
	const page = ddf.PageBytes
	for name, c := range map[string]struct {
		windows []ddf.WindowSpec
		code    gpuerr.Code
		prepare func(*fakeKernel)
	}{
		"no such BAR":          {[]ddf.WindowSpec{{Bar: 6, Bytes: page}}, gpuerr.Invalid, nil},
		"absent BAR":           {[]ddf.WindowSpec{{Bar: 3, Bytes: page}}, gpuerr.Invalid, nil},
		"I/O ports":            {[]ddf.WindowSpec{{Bar: 1, Bytes: page}}, gpuerr.Invalid, nil},
		"nothing":              {[]ddf.WindowSpec{{Bar: 0}}, gpuerr.Invalid, nil},
		"half a page":          {[]ddf.WindowSpec{{Bar: 0, Bytes: 2048}}, gpuerr.Invalid, nil},
		"within a page":        {[]ddf.WindowSpec{{Bar: 0, Offset: 8, Bytes: page}}, gpuerr.Invalid, nil},
		"behind the end":       {[]ddf.WindowSpec{{Bar: 0, Offset: 1 << 20, Bytes: page}}, gpuerr.Invalid, nil},
		"over the end":         {[]ddf.WindowSpec{{Bar: 0, Offset: 1<<20 - page, Bytes: 2 * page}}, gpuerr.Invalid, nil},
		"around the end of it": {[]ddf.WindowSpec{{Bar: 0, Offset: 1<<64 - page, Bytes: 2 * page}}, gpuerr.Invalid, nil},
		"overlap":              {[]ddf.WindowSpec{{Bar: 0, Bytes: 2 * page}, {Bar: 0, Offset: page, Bytes: page}}, gpuerr.Invalid, nil},
		"doorbell outside":     {[]ddf.WindowSpec{{Bar: 0, Bytes: page, Doorbells: []uint64{page}}}, gpuerr.Invalid, nil},
		"doorbell between":     {[]ddf.WindowSpec{{Bar: 0, Bytes: page, Doorbells: []uint64{2}}}, gpuerr.Invalid, nil},
		"the MSI-X table":      {[]ddf.WindowSpec{{Bar: 2, Bytes: 4 * page}}, gpuerr.Denied, func(k *fakeKernel) { k.addMSIX(2, 2*page) }},
		"not in a mappable part": {[]ddf.WindowSpec{{Bar: 0, Bytes: 4 * page}}, gpuerr.Denied, func(k *fakeKernel) {
			k.bars[0].Sparse, k.bars[0].Areas = true, []uapi.MmapArea{{Offset: page, Size: 3 * page}}
		}},
		"a kernel that overflows": {[]ddf.WindowSpec{{Bar: 0, Bytes: page}}, gpuerr.IO, func(k *fakeKernel) { k.bars[0].Offset = 1<<64 - page }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if c.prepare != nil {
				c.prepare(r.kernel)
			}
			r.options.Windows = c.windows
			require.ErrorIs(t, r.refused(t), c.code)
		})
	}
}

// TestWindowsBesideTheTable: memory around the MSI-X table can be granted.
func TestWindowsBesideTheTable(t *testing.T) {
	r := newRig(t)
	r.kernel.addMSIX(2, 2*ddf.PageBytes)
	r.kernel.bars[0].Sparse, r.kernel.bars[0].Areas = true, []uapi.MmapArea{{Offset: ddf.PageBytes, Size: 3 * ddf.PageBytes}}
	r.options.Windows = []ddf.WindowSpec{{Bar: 2, Bytes: 2 * ddf.PageBytes}, {Bar: 2, Offset: 3 * ddf.PageBytes, Bytes: ddf.PageBytes}, {Bar: 0, Offset: 2 * ddf.PageBytes, Bytes: 2 * ddf.PageBytes}}
	r.options.Vectors = 8
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	e := event(t, f)
	r.kernel.signal(t, uapi.IRQIndexMSIX, 0)
	require.EqualValues(t, 1, comes(t, e))
}

// TestWholeBARs: the default grant never contains the table.
func TestWholeBARs(t *testing.T) {
	const page = ddf.PageBytes
	whole := func(prepare func(*fakeKernel)) []ddf.WindowSpec {
		r := newRig(t)
		r.options.Windows = nil
		prepare(r.kernel)
		return r.open(t).Windows()
	}
	first := ddf.WindowSpec{Bar: 0, Bytes: 1 << 20, Writable: true}
	for _, c := range []struct {
		name    string
		prepare func(*fakeKernel)
		second  ddf.WindowSpec
	}{
		{"no table", func(*fakeKernel) {}, ddf.WindowSpec{Bar: 2, Bytes: 64 << 10, Writable: true}},
		{"table first", func(k *fakeKernel) { k.addMSIX(2, 0) }, ddf.WindowSpec{Bar: 2, Offset: page, Bytes: 15 * page, Writable: true}},
		{"table last", func(k *fakeKernel) { k.addMSIX(2, 15*page) }, ddf.WindowSpec{Bar: 2, Bytes: 15 * page, Writable: true}},
		{"table within", func(k *fakeKernel) { k.addMSIX(2, 10*page) }, ddf.WindowSpec{Bar: 2, Bytes: 10 * page, Writable: true}},
		{"table in parts that the kernel leaves out", func(k *fakeKernel) {
			k.addMSIX(2, 10*page)
			k.bars[2].Sparse, k.bars[2].Areas = true, []uapi.MmapArea{{Size: 3 * page}, {Offset: 11 * page, Size: 5 * page}}
		}, ddf.WindowSpec{Bar: 2, Offset: 11 * page, Bytes: 5 * page, Writable: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, []ddf.WindowSpec{first, c.second}, whole(c.prepare))
		})
	}
	require.Equal(t, []ddf.WindowSpec{first}, whole(func(k *fakeKernel) {
		k.addMSIX(2, 0)
		k.bars[2].Size = page
	}), "a BAR that is the table's is left out")
	require.Empty(t, whole(func(k *fakeKernel) { k.bars[0].Size, k.bars[2].Size = 100, 0 }))
}

// TestRegistersOutOfReach: pages that the kernel has taken away cost an error, not
// the process.
func TestRegistersOutOfReach(t *testing.T) {
	r := newRig(t)
	m, err := shm.Create("registers", 4096)
	require.NoError(t, err)
	b, err := m.Map(0, 4096, true)
	require.NoError(t, err)
	require.NoError(t, unix.Mprotect(b, unix.PROT_NONE))
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	r.options.Windows = []ddf.WindowSpec{{Bar: 0, Bytes: 4096}}
	r.options.Kernel = &unreachable{r.kernel, b}
	f := r.open(t)
	_, err = f.Load32(0, 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.ErrorIs(t, f.Store32(0, 0, 1), gpuerr.DeviceLost)
}

// unreachable maps registers that do not answer.
type unreachable struct {
	*fakeKernel
	registers []byte
}

func (u *unreachable) Mmap(int, int64, int, bool) ([]byte, error) {
	u.maps++
	return u.registers, nil
}
