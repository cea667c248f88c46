package lane

import (
	"errors"
	"sync/atomic"

	"capgpu/program"
	"capgpu/program/verify"
)

// Options choose the target of a compilation.
type Options struct {
	SubgroupSize int          // 8, 16, 32 or 64; 0 is 32
	Block        program.Dim3 // the workgroup; zero is the program's default
	SharedBytes  uint32       // of the dynamic array of shared memory
	Check        bool         // find races and the like, see Findings

	// Stop, if not nil, ends Compile soon after it is set; the error is ErrStopped.
	Stop *atomic.Uint32
}

// Limits of one worker's memory and of the unrolling of a module.
const (
	maxWorkerBytes = 16 << 20
	maxInstrs      = 64 << 10
	maxCodeBytes   = 32 << 20
)

// maxWork bounds the work of Compile for one program, in steps of about 100 ns.
// Some small modules make much work, for example by calling a function with a large
// array over and over.
const maxWork = 4 << 20

// ErrStopped is the error of a Compile that Options.Stop ended.
var ErrStopped = errors.New("lane: the compilation was stopped")

// check fills in defaults and refuses values that no launch may have.
func (o *Options) check(p *verify.Program) error {
	info := &p.Info
	if o.SubgroupSize == 0 {
		o.SubgroupSize = 32
	}

	switch o.SubgroupSize {
	case 8, 16, 32, 64:
	default:
		return program.Refuse("P-GPU-5003", "", 0, "the subgroup size is %d, not 8, 16, 32 or 64", o.SubgroupSize)
	}

	if o.Block == (program.Dim3{}) {
		o.Block = info.Block
	}

	fixed := !info.BlockFree && o.Block != info.Block
	for i, d := range [3][2]uint32{{o.Block.X, info.Block.X}, {o.Block.Y, info.Block.Y}, {o.Block.Z, info.Block.Z}} {
		fixed = fixed || p.BlockIDs[i] == 0 && d[0] != d[1]
	}

	if fixed {
		return program.Refuse("P-GPU-5003", "", 0, "the workgroup is %v, the program has %v", o.Block, info.Block)
	}

	n := uint64(o.Block.X) * uint64(o.Block.Y)
	if o.Block.X > program.MaxBlockThreads || o.Block.Y > program.MaxBlockThreads || o.Block.Z > program.MaxBlockThreads ||
		n*uint64(o.Block.Z) == 0 || n*uint64(o.Block.Z) > program.MaxBlockThreads {
		return program.Refuse("P-GPU-5003", "", 0, "the workgroup %v does not have 1 to %d lanes", o.Block, program.MaxBlockThreads)
	}
	if shared := info.SharedFor(o.Block) + uint64(o.SharedBytes); shared > program.MaxSharedBytes {
		return program.Refuse("P-GPU-5003", "", 0, "%d bytes of shared memory, of which %d are dynamic, are more than %d",
			shared, o.SharedBytes, program.MaxSharedBytes)
	}
	if o.SharedBytes != 0 && info.DynamicElementBytes == 0 {
		return program.Refuse("P-GPU-5003", "", 0, "%d bytes of dynamic shared memory, but the program has no dynamic array", o.SharedBytes)
	}
	if info.DynamicElementBytes != 0 && o.SharedBytes%info.DynamicElementBytes != 0 {
		return program.Refuse("P-GPU-5003", "", 0, "%d bytes of dynamic shared memory are not a multiple of its elements of %d bytes", o.SharedBytes, info.DynamicElementBytes)
	}

	return nil
}
