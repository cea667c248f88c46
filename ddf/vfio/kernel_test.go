package vfio_test

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/vfio"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
	uapi "capgpu/internal/uapi/vfio"
	"capgpu/iommu"
)

// fakeKernel is a device behind vfio: a configuration space, two BARs of memory, vectors that
// a test raises. It checks the order of the calls.
type fakeKernel struct {
	uapi.Kernel // nil: other calls must not be made

	mu       sync.Mutex
	config   [256]byte
	bars     [6]uapi.Region
	maps     int
	irqs     map[uint32]uapi.IRQInfo
	triggers map[uint32][]int32
	flags    uint32
	gone     bool
	resets   int
	events   []string

	// Faults of the kernel and the device.
	stuckMaster bool              // the bus master bit cannot be cleared
	fail        map[string]error  // by call
	resetFails  []error           // one for each reset
	onReset     func(*fakeKernel) // with mu held
}

const (
	deviceFD  = 1 << 20 // no descriptor
	configOff = 7 << 40
)

func newFakeKernel() *fakeKernel {
	k := &fakeKernel{flags: uapi.DevicePCI | uapi.DeviceReset, triggers: map[uint32][]int32{}, fail: map[string]error{}}
	copy(k.config[:], []byte{0x34, 0x12, 0xe8, 0x11})
	copy(k.config[0x08:], []byte{0x10, 0, 0xff, 0})
	k.config[0x04] = 0x06 // memory and bus master, as a driver may have left it
	const mappable = uapi.RegionRead | uapi.RegionWrite | uapi.RegionMmap
	k.bars[0].RegionInfo = uapi.RegionInfo{Flags: mappable, Size: 1 << 20}
	k.bars[1].RegionInfo = uapi.RegionInfo{Flags: uapi.RegionRead | uapi.RegionWrite, Size: 256, Offset: 1 << 40}
	k.bars[2].RegionInfo = uapi.RegionInfo{Flags: mappable, Size: 64 << 10, Offset: 2 << 40}
	event := uint32(uapi.IRQEventFD | uapi.IRQNoResize)
	k.irqs = map[uint32]uapi.IRQInfo{
		uapi.IRQIndexINTx: {Flags: uapi.IRQEventFD, Count: 1},
		uapi.IRQIndexMSI:  {Flags: event, Count: 4},
		uapi.IRQIndexMSIX: {Flags: event},
		uapi.IRQIndexErr:  {Flags: event, Count: 1},
		uapi.IRQIndexReq:  {Flags: event, Count: 1},
	}
	return k
}

// addMSIX gives the device eight MSI-X vectors. Their table is at off of a BAR.
func (k *fakeKernel) addMSIX(bar, off uint32) {
	k.config[0x06] |= 0x10
	k.config[0x34] = 0x50
	copy(k.config[0x50:], []byte{0x01, 0x70}) // power management, then
	copy(k.config[0x70:], []byte{0x11, 0, 7, 0})
	binary.LittleEndian.PutUint32(k.config[0x74:], off|bar)
	k.irqs[uapi.IRQIndexMSIX] = uapi.IRQInfo{Flags: uapi.IRQEventFD | uapi.IRQNoResize, Count: 8}
}

// noNotices makes it a kernel that does not report a removal.
func (k *fakeKernel) noNotices() {
	delete(k.irqs, uapi.IRQIndexReq)
	delete(k.irqs, uapi.IRQIndexErr)
}

func (k *fakeKernel) command() byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.config[0x04]
}

func (k *fakeKernel) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	did := k.events
	k.events = nil
	return did
}

// signal raises the eventfd of an interrupt index.
func (k *fakeKernel) signal(t testing.TB, index uint32, vector int) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Greater(t, len(k.triggers[index]), vector)
	require.NoError(t, tell(int(k.triggers[index][vector])))
}

// tell is eventfd_signal: it adds one, or nothing to a full counter, and never waits.
func tell(fd int) error {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(p, 0); err != nil || n == 0 {
		return err
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, err := unix.Write(fd, one[:])
	return err
}

func (k *fakeKernel) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone = true
	for i := range k.config {
		k.config[i] = 0xff
	}
	copy(k.config[:], []byte{0x34, 0x12, 0xe8, 0x11}) // which vfio answers from memory
}

func (k *fakeKernel) DeviceInfo(int) (uapi.DeviceInfo, error) {
	return uapi.DeviceInfo{Flags: k.flags, NumRegions: uapi.NumRegions, NumIRQs: uapi.NumIRQs}, k.fail["DeviceInfo"]
}

func (k *fakeKernel) RegionInfo(_ int, index uint32, b []byte) error {
	r := uapi.RegionInfo{Flags: uapi.RegionRead | uapi.RegionWrite, Size: 256, Offset: configOff}
	if index < 6 {
		r = k.bars[index].RegionInfo
	}
	for i, v := range []uint32{32, r.Flags, index, 0} {
		binary.NativeEndian.PutUint32(b[4*i:], v)
	}
	binary.NativeEndian.PutUint64(b[16:], r.Size)
	binary.NativeEndian.PutUint64(b[24:], r.Offset)
	if index < 6 && k.bars[index].Sparse {
		areas := k.bars[index].Areas
		binary.NativeEndian.PutUint32(b[4:], r.Flags|uapi.RegionCaps)
		binary.NativeEndian.PutUint32(b[12:], 32)
		binary.NativeEndian.PutUint16(b[32:], uapi.RegionCapSparseMmap)
		binary.NativeEndian.PutUint32(b[40:], uint32(len(areas)))
		for i, a := range areas {
			binary.NativeEndian.PutUint64(b[48+16*i:], a.Offset)
			binary.NativeEndian.PutUint64(b[56+16*i:], a.Size)
		}
	}
	return k.fail["RegionInfo"]
}

func (k *fakeKernel) IRQInfo(_ int, index uint32) (uapi.IRQInfo, error) {
	info, ok := k.irqs[index]
	if !ok {
		return info, unix.EINVAL
	}
	return info, k.fail["IRQInfo"]
}

func (k *fakeKernel) SetIRQs(_ int, set uapi.IRQSet, fds []int32) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fail["SetIRQs"]; err != nil {
		return err
	}
	switch {
	case set.Flags == uapi.IRQDataNone|uapi.IRQActionTrigger && set.Count == 0:
		delete(k.triggers, set.Index)
		k.events = append(k.events, "disarm")
	case set.Flags == uapi.IRQDataNone|uapi.IRQActionTrigger && len(fds) == 0 && int(set.Start+set.Count) <= len(k.triggers[set.Index]):
		for _, fd := range k.triggers[set.Index][set.Start : set.Start+set.Count] {
			if err := tell(int(fd)); err != nil {
				return err
			}
		}
	case set.Flags != uapi.IRQDataEventFD|uapi.IRQActionTrigger, len(fds) != int(set.Count), set.Start+set.Count > k.irqs[set.Index].Count:
		return unix.EINVAL
	case set.Start == 0 && k.triggers[set.Index] == nil:
		k.triggers[set.Index] = append([]int32(nil), fds...)
		k.events = append(k.events, "arm")
	default:
		copy(k.triggers[set.Index][set.Start:], fds)
		k.events = append(k.events, "swap")
	}
	return nil
}

func (k *fakeKernel) Reset(int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.resets++
	k.events = append(k.events, "reset")
	if len(k.resetFails) > 0 {
		err := k.resetFails[0]
		k.resetFails = k.resetFails[1:]
		return err
	}
	if k.onReset != nil {
		k.onReset(k)
	}
	return nil
}

func (k *fakeKernel) Pread(_ int, b []byte, off int64) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fail["Pread"]; err != nil {
		return 0, err
	}
	return copy(b, k.config[off-configOff:]), nil
}

func (k *fakeKernel) Pwrite(_ int, b []byte, off int64) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone {
		return len(b), nil
	}
	v := b[0]
	if k.stuckMaster {
		v |= 4
	}
	if v&4 != k.config[0x04]&4 {
		k.events = append(k.events, map[bool]string{true: "master on", false: "master off"}[v&4 != 0])
	}
	k.config[off-configOff] = v
	return len(b), nil
}

func (k *fakeKernel) Mmap(_ int, off int64, n int, writable bool) ([]byte, error) {
	if err := k.fail["Mmap"]; err != nil {
		return nil, err
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err == nil {
		k.maps++
	}
	return b, err
}

func (k *fakeKernel) Munmap(b []byte) error {
	k.maps--
	return unix.Munmap(b)
}

// fakeContainer is a domain that opens the fake device.
type fakeContainer struct {
	*iommu.Fake
	closes int
	err    error
}

func (c *fakeContainer) Device(string) (int, error) { return deviceFD, c.err }

func (c *fakeContainer) Close() error {
	c.closes++
	return c.Fake.Close()
}

const fakeAddress = "0000:01:00.0"

// rig is a function on a fake kernel.
type rig struct {
	kernel    *fakeKernel
	container *fakeContainer
	options   vfio.Options
}

func newRig(t testing.TB) *rig {
	t.Helper()
	tree := pcitest.New(t)
	f := pcitest.Edu(fakeAddress, 5)
	f.Vendor, f.Driver, f.Resets = 0x4321, "vfio-pci", "flr bus" // no quirks
	tree.Add(f)
	a, err := pci.ParseAddress(fakeAddress)
	require.NoError(t, err)
	r := &rig{kernel: newFakeKernel(), container: &fakeContainer{Fake: iommu.NewFake([]iommu.Range{{Start: 0, End: 1 << 32}}, 100)}}
	r.options = vfio.Options{
		Address: a, Bus: tree.Bus(), Kernel: r.kernel, Proc: t.TempDir(), Vectors: 2,
		Windows:   []ddf.WindowSpec{{Bar: 0, Bytes: 8192, Writable: true}, {Bar: 2, Bytes: 4096, Doorbells: []uint64{8}}},
		Container: func(int) (vfio.Container, error) { return r.container, nil },
	}
	return r
}

func (r *rig) open(t testing.TB) *vfio.Function {
	t.Helper()
	f := open(t, r.options)
	t.Cleanup(func() {
		_ = f.Close() // the cleanup above has checked it, or the test
		require.Zero(t, r.kernel.maps, "mappings of windows are left")
		require.Equal(t, 1, r.container.closes)
	})
	return f
}

// refused opens what must be refused, and left as it was.
func (r *rig) refused(t testing.TB) error {
	t.Helper()
	_, err := vfio.Open(r.options)
	require.Error(t, err)
	require.Zero(t, r.kernel.maps, "mappings of windows are left")
	require.LessOrEqual(t, r.container.closes, 1)
	return err
}
