package accel

// The memory spaces. A buffer's is part of its type.
type (
	Host    struct{} // pageable memory of this process
	Staging struct{} // shared with the device, for transfers only
	Device  struct{} // the device's
	Unified struct{} // this process and the device use it

	PinnedHost = Staging // the name in the accelerator runtime model
	Gpu        = Device  // likewise
)

// Space is any memory space.
type Space interface {
	Host | Staging | Device | Unified
}

// HostSide are the spaces that this process reads and writes: see Slice. With another one the
// compiler refuses, as E-GPU-4001.
type HostSide interface{ Host | Staging | Unified }

// DeviceSide are the spaces that a kernel uses: see Arg. With another one the compiler
// refuses, as E-GPU-4001, and for Staging as E-GPU-4006.
type DeviceSide interface{ Device | Unified }

// Async are the spaces that a stream copies from and to: see Copy.
type Async interface{ Staging | Device | Unified }

// Scalar is a type that a kernel takes by value: see Value. With another one the compiler
// refuses, as E-GPU-4021.
type Scalar interface {
	~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// spaceName is the Go name of a space.
func spaceName[S Space]() string {
	var s S
	switch any(s).(type) {
	case Host:
		return "Host"
	case Staging:
		return "Staging"
	case Unified:
		return "Unified"
	}
	return "Device"
}
