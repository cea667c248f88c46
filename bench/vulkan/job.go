package vulkan

import (
	"time"

	"capgpu/bench/child"
)

// Job is one dispatch, or a list of them: buffers in, buffers out.
type Job struct {
	SPIRV     []byte
	Entry     string // "main" if empty
	Grid      [3]uint32
	Constants []Constant // specialisation constants
	Inline    []byte     // push constants
	More      [][]byte   // push constants of more dispatches, as long, each behind a barrier
	Bindings  [][]byte   // set 0, by binding; nil for an unused one
	Timeout   time.Duration
}

// Constant is the value of a specialisation constant, of 4 or 8 bytes.
type Constant struct {
	ID    uint32
	Value uint64
	Bytes uint32
}

// Device is a driver's description of itself.
type Device struct {
	Name         string // "llvmpipe (LLVM 15.0.6, 256 bits)"
	Driver       string // "Mesa 22.3.6 (LLVM 15.0.6)"
	CPU          bool
	SubgroupSize uint32
	SubgroupOps  SubgroupOps
	SharedBytes  uint32 // most shared memory of a workgroup
	BindingBytes uint32 // most of one storage buffer
	InlineBytes  uint32
	Float64      bool
	Int64        bool
	Storage8     bool
	Storage16    bool
	FloatAtomics bool // add to f32, in storage buffers
}

// SubgroupOps are the kinds of subgroup operations that a device has:
// VkSubgroupFeatureFlagBits.
type SubgroupOps uint32

const (
	SubgroupBasic           SubgroupOps = 1 << 0
	SubgroupVote            SubgroupOps = 1 << 1
	SubgroupArithmetic      SubgroupOps = 1 << 2
	SubgroupBallot          SubgroupOps = 1 << 3
	SubgroupShuffle         SubgroupOps = 1 << 4
	SubgroupShuffleRelative SubgroupOps = 1 << 5
)

// Errors of Run. Both are facts about the job, if nothing else is wrong with the
// machine; the child is a new one afterwards.
var (
	ErrTimeout = child.ErrTimeout
	ErrCrashed = child.ErrCrashed
)

// reply is a child's answer; the first one, to no job, has Device.
type reply struct {
	Device   Device
	Bindings [][]byte
	Timeout  bool
	Err      string
}
