package refmodel

import "capgpu/outcome"

// Limits are those of the device.
type Limits struct {
	MaxThreadsPerBlock, MaxBlockDim, MaxGridDim, MaxSharedBytes, MaxBindings, MaxInlineBytes uint32

	OffsetAlign     uint32 // 0: a binding begins anywhere
	MaxBindingBytes uint64 // 0: no bound
}

// Facet is what a session may do: 0 memory, 1 program, 2 full.
type Facet uint8

// Session is what a client has.
type Session struct {
	Limits   Limits
	Facet    Facet
	Poisoned bool // work of it has trapped
	Spent    bool // its device time is used up
	// Fails says of a fingerprint whether the device fails what has it; nil: never.
	Fails func(fingerprint uint64) bool

	objects map[uint64]any // by handle: *Buffer, *Program, *Fence or *List
	failed  bool           // work has failed, and its completion is not published

	// The charges.
	DeviceNanos uint64
	Jobs        uint64 // that the device was given
}

// NewSession has nothing.
func NewSession(l Limits, f Facet) *Session {
	return &Session{Limits: l, Facet: f, objects: map[uint64]any{}}
}

// Buffer is device memory. IOVA is where the device sees it.
type Buffer struct {
	Bytes, IOVA uint64
	CanRead     bool // a program may read it: usage storage or upload
	CanWrite    bool // a program may write it: usage storage or readback
	lists       []*List
}

// Access is what a program does with a binding: 1 read, 2 write, 3 both.
type Access uint8

// Program is what a launch is checked against.
type Program struct {
	Number              uint64 // by which the device knows it
	Access              []Access
	InlineBytes         uint32
	SharedBytes         uint32 // static
	DynamicElementBytes uint32 // 0: no dynamic array
	Block               [3]uint32
	BlockFree           bool
	Natural             Natural
	lists               []*List
}

// Natural is a program's natural grid (docs/program-profile.md).
type Natural struct {
	Groups       uint32 // whatever the bindings; 0: by the bindings
	Cover        int    // which binding is covered; -1: the shortest
	ElementBytes uint32 // 0: 4
	PerGroup     uint32 // 0: the lanes of a workgroup
}

// Fence is a timeline; all its points are signals that have ended.
type Fence struct {
	Initial uint64
	points  []point // the last of them, ascending
	last    uint64
}

type point struct {
	value uint64
	how   outcome.Outcome
}

// NewFence stands at initial.
func NewFence(initial uint64) *Fence { return &Fence{Initial: initial, last: initial} }

// Last is the last point that was promised, and reached.
func (f *Fence) Last() uint64 { return f.last }

// keptPoints is how many points are told exactly.
const keptPoints = 32

func (f *Fence) reach(value uint64, how outcome.Outcome) {
	if len(f.points) == 2*keptPoints {
		f.points = f.points[:copy(f.points, f.points[keptPoints:])]
	}
	f.points, f.last = append(f.points, point{value, how}), value
}

// Exact reports whether a question about a value is answered exactly: it is not long past.
func (f *Fence) Exact(value uint64) bool {
	n := len(f.points)
	return value <= f.Initial || value > f.last || n <= keptPoints || value > f.points[n-keptPoints].value
}

// at is the outcome of the first point of at least value, which is reached.
func (f *Fence) at(value uint64) outcome.Outcome {
	if value <= f.Initial {
		return outcome.Success
	}
	for _, p := range f.points {
		if p.value >= value {
			return p.how
		}
	}
	return outcome.Success
}

// Add tells of an object that was made: a *Buffer, *Program, *Fence or *List.
func (s *Session) Add(handle uint64, object any) { s.objects[handle] = object }

// Close tells of an object that was closed. Lists that a buffer or a program is in are
// no good any more.
func (s *Session) Close(handle uint64) {
	var lists []*List
	switch x := s.objects[handle].(type) {
	case *Buffer:
		lists = x.lists
	case *Program:
		lists = x.lists
	}
	for _, l := range lists {
		l.dead = true
	}
	delete(s.objects, handle)
}

func find[T any](s *Session, handle uint64) (*T, bool) {
	x, ok := s.objects[handle].(*T)
	return x, ok
}
