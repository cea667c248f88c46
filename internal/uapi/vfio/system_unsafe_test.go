package vfio

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// heard has the arguments of an ioctl.
type heard struct {
	fd     int
	req    Request
	number int
	words  []uint32 // at arg, as many as argsz says
}

// listen makes a System. After two signals, answer answers its ioctls.
func listen(answer func(arg unsafe.Pointer) (int, unix.Errno)) (System, *[]heard) {
	var calls []heard
	signals := 2
	return System{call: func(fd int, req Request, arg unsafe.Pointer, number int) (int, unix.Errno) {
		if signals > 0 {
			signals--
			return -1, unix.EINTR
		}
		h := heard{fd: fd, req: req, number: number}
		if arg != nil && req != GroupGetDeviceFD && req != GroupSetContainer {
			h.words = append(h.words, unsafe.Slice((*uint32)(arg), *(*uint32)(arg)/4)...)
		}
		calls = append(calls, h)
		if answer == nil {
			return 0, 0
		}
		return answer(arg)
	}}, &calls
}

// Each call, with the number, the argsz and the fields that reach the kernel.
func TestCalls(t *testing.T) {
	const fd = 7
	for name, c := range map[string]struct {
		call   func(s System) error
		want   heard
		answer func(arg unsafe.Pointer) (int, unix.Errno)
	}{
		"APIVersion": {func(s System) error {
			v, err := s.APIVersion(fd)
			require.Equal(t, 3, v)
			return err
		}, heard{fd, GetAPIVersion, 0, nil}, func(unsafe.Pointer) (int, unix.Errno) { return 3, 0 }},
		"HasExtension": {func(s System) error {
			has, err := s.HasExtension(fd, Type1v2IOMMU)
			require.True(t, has)
			return err
		}, heard{fd, CheckExtension, 3, nil}, func(unsafe.Pointer) (int, unix.Errno) { return 1, 0 }},
		"SetIOMMU":       {func(s System) error { return s.SetIOMMU(fd, Type1v2IOMMU) }, heard{fd, SetIOMMU, 3, nil}, nil},
		"UnsetContainer": {func(s System) error { return s.UnsetContainer(fd) }, heard{fd, GroupUnsetContainer, 0, nil}, nil},
		"Reset":          {func(s System) error { return s.Reset(fd) }, heard{fd, DeviceResetNow, 0, nil}, nil},
		"SetContainer": {func(s System) error { return s.SetContainer(fd, 9) }, heard{fd, GroupSetContainer, 0, nil},
			func(arg unsafe.Pointer) (int, unix.Errno) {
				require.EqualValues(t, 9, *(*int32)(arg))
				return 0, 0
			}},
		"DeviceFD": {func(s System) error {
			device, err := s.DeviceFD(fd, "0000:01:00.0")
			require.Equal(t, 11, device)
			return err
		}, heard{fd, GroupGetDeviceFD, 0, nil}, func(arg unsafe.Pointer) (int, unix.Errno) {
			require.Equal(t, "0000:01:00.0", unix.BytePtrToString((*byte)(arg)))
			return 11, 0
		}},
		"GroupStatus": {func(s System) error {
			status, err := s.GroupStatus(fd)
			require.EqualValues(t, GroupViable, status.Flags)
			return err
		}, heard{fd, GroupGetStatus, 0, []uint32{8, 0}}, func(arg unsafe.Pointer) (int, unix.Errno) {
			(*GroupStatus)(arg).Flags = GroupViable
			return 0, 0
		}},
		"DeviceInfo": {func(s System) error {
			info, err := s.DeviceInfo(fd)
			require.EqualValues(t, 9, info.NumRegions)
			return err
		}, heard{fd, DeviceGetInfo, 0, []uint32{24, 0, 0, 0, 0, 0}}, func(arg unsafe.Pointer) (int, unix.Errno) {
			(*DeviceInfo)(arg).NumRegions = 9
			return 0, 0
		}},
		"IRQInfo": {func(s System) error {
			info, err := s.IRQInfo(fd, IRQIndexMSI)
			require.EqualValues(t, 1, info.Count)
			return err
		}, heard{fd, DeviceGetIRQInfo, 0, []uint32{16, 0, 1, 0}}, func(arg unsafe.Pointer) (int, unix.Errno) {
			(*IRQInfo)(arg).Count = 1
			return 0, 0
		}},
		"SetIRQs": {func(s System) error {
			return s.SetIRQs(fd, IRQSet{Flags: IRQDataEventFD | IRQActionTrigger, Index: IRQIndexMSIX, Start: 4, Count: 2}, []int32{5, -1})
		}, heard{fd, DeviceSetIRQs, 0, []uint32{28, 1<<2 | 1<<5, 2, 4, 2, 5, 0xffffffff}}, nil},
		"SetIRQs without eventfds": {func(s System) error {
			return s.SetIRQs(fd, IRQSet{Flags: IRQDataNone | IRQActionTrigger, Index: IRQIndexMSI}, nil)
		}, heard{fd, DeviceSetIRQs, 0, []uint32{20, 1<<0 | 1<<5, 1, 0, 0}}, nil},
		"MapDMA": {func(s System) error {
			return s.MapDMA(fd, &DMAMap{Flags: DMAMapRead, Vaddr: 1 << 40, IOVA: 1 << 33, Size: 0x1000})
		}, heard{fd, IOMMUMapDMA, 0, []uint32{32, 1, 0, 1 << 8, 0, 2, 0x1000, 0}}, nil},
		"UnmapDMA": {func(s System) error {
			u := &DMAUnmap{IOVA: 1 << 33, Size: 0x1000}
			err := s.UnmapDMA(fd, u)
			require.EqualValues(t, 0x800, u.Size)
			return err
		}, heard{fd, IOMMUUnmapDMA, 0, []uint32{24, 0, 0, 2, 0x1000, 0}}, func(arg unsafe.Pointer) (int, unix.Errno) {
			(*DMAUnmap)(arg).Size = 0x800
			return 0, 0
		}},
	} {
		s, calls := listen(c.answer)
		require.NoError(t, c.call(s), name)
		require.Equal(t, []heard{c.want}, *calls, name)

		s = System{call: func(int, Request, unsafe.Pointer, int) (int, unix.Errno) { return -1, unix.ENOTTY }}
		if name == "APIVersion" || name == "HasExtension" || name == "DeviceFD" || name == "GroupStatus" || name == "DeviceInfo" || name == "IRQInfo" || name == "UnmapDMA" {
			continue // they look into the answer
		}
		require.Equal(t, unix.ENOTTY, c.call(s), name)
	}
}

func TestFilledAnswers(t *testing.T) {
	b := make([]byte, infoBytes)
	for name, c := range map[string]struct {
		call  func(s System) error
		req   Request
		index uint32
	}{
		"IOMMUInfo":  {func(s System) error { return s.IOMMUInfo(7, b) }, IOMMUGetInfo, 0},
		"RegionInfo": {func(s System) error { return s.RegionInfo(7, 5, b) }, DeviceGetRegionInfo, 5},
	} {
		for i := range b {
			b[i] = 0xff
		}
		s, calls := listen(nil)
		require.NoError(t, c.call(s), name)
		want := make([]uint32, infoBytes/4)
		want[0], want[2] = infoBytes, c.index
		require.Equal(t, []heard{{7, c.req, 0, want}}, *calls, name)
	}
	s, calls := listen(nil)
	require.Equal(t, unix.EINVAL, s.IOMMUInfo(7, b[:infoBytes-1]))
	require.Empty(t, *calls)
}

// The system calls themselves, on what this machine has.
func TestRealCalls(t *testing.T) {
	leakcheck.Check(t)
	s := System{}
	fd, err := s.Open("/dev/null")
	require.NoError(t, err)
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC)
	_, err = s.APIVersion(fd)
	require.Equal(t, unix.ENOTTY, err)
	require.Equal(t, unix.ENOTTY, s.MapDMA(fd, &DMAMap{}))
	require.ErrorIs(t, Error("map", s.MapDMA(fd, &DMAMap{})), gpuerr.Unimplemented)
	require.NoError(t, s.Close(fd))
	require.Equal(t, unix.EBADF, s.Close(fd))
	_, err = s.Open("/dev/vfio/no such group")
	require.Equal(t, unix.ENOENT, err)
	_, err = s.DeviceFD(-1, "a\x00b")
	require.Equal(t, unix.EINVAL, err)

	fd, err = unix.MemfdCreate("vfio-test", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	n, err := s.Pwrite(fd, []byte("region"), 8)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	b := make([]byte, 6)
	_, err = s.Pread(fd, b, 8)
	require.NoError(t, err)
	require.Equal(t, "region", string(b))
	m, err := s.Mmap(fd, 0, 4096, true)
	require.NoError(t, err)
	require.Equal(t, byte('r'), m[8])
	require.Zero(t, Address(m)%4096)
	require.NotZero(t, Address(m))
	require.NoError(t, s.Munmap(m))
	m, err = s.Mmap(fd, 0, 4096, false)
	require.NoError(t, err)
	require.NoError(t, s.Munmap(m))
	require.NoError(t, s.Close(fd))
}

func TestErrors(t *testing.T) {
	require.NoError(t, Error("do", nil))
	for errno, code := range map[unix.Errno]gpuerr.Code{
		unix.ENOTTY: gpuerr.Unimplemented, unix.ENODEV: gpuerr.DeviceLost, unix.EBUSY: gpuerr.Busy, unix.EACCES: gpuerr.Denied,
		unix.EPERM: gpuerr.Denied, unix.ENOENT: gpuerr.NoDevice, unix.EMFILE: gpuerr.IO, unix.EFAULT: gpuerr.IO,
	} {
		err := Error("open /dev/vfio/5", errno)
		require.ErrorIs(t, err, code)
		require.ErrorIs(t, err, errno)
		require.Equal(t, code, gpuerr.CodeOf(err))
		require.ErrorContains(t, err, "cannot open /dev/vfio/5: "+errno.Error())
	}
	kept := gpuerr.New(gpuerr.Quota, "typed already")
	require.Same(t, kept, unwrapTyped(Error("do", kept)))
}

func unwrapTyped(err error) *gpuerr.Error {
	u, ok := err.(interface{ Unwrap() error })
	if !ok {
		return nil
	}
	typed, _ := u.Unwrap().(*gpuerr.Error)
	return typed
}
