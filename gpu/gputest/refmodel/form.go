package refmodel

import (
	"math/big"

	"capgpu/gpuerr"
)

// Entry is the 64 bytes of a submission, as eight words.
type Entry [8]uint64

// The fields, as docs/wire.md numbers their bytes.
func (e *Entry) op() uint8        { return uint8(e[0]) }
func (e *Entry) flags() uint8     { return uint8(e[0] >> 8) }
func (e *Entry) count() uint32    { return uint32(e[0]>>16) & 0xffff }
func (e *Entry) deadline() uint32 { return uint32(e[0] >> 32) }
func (e *Entry) userData() uint64 { return e[1] }
func (e *Entry) object() uint64   { return e[2] }
func (e *Entry) a() uint64        { return e[3] }
func (e *Entry) b() uint64        { return e[4] }
func (e *Entry) c() uint64        { return e[5] }
func (e *Entry) d() uint64        { return e[6] }
func (e *Entry) zero() uint64     { return e[7] }
func (e *Entry) grid() [3]uint32  { return [3]uint32{uint32(e[3]), uint32(e[3] >> 32), uint32(e[4])} }
func (e *Entry) inline() uint32   { return uint32(e[5]>>16) & 0xffff }
func (e *Entry) shared() uint32   { return uint32(e[5] >> 32) }
func (e *Entry) argOff() uint32   { return uint32(e[6]) }
func (e *Entry) argBytes() uint32 { return uint32(e[6] >> 32) }
func (e *Entry) block() [3]uint32 {
	return [3]uint32{uint32(e[4]>>32) & 0xffff, uint32(e[4] >> 48), uint32(e[5]) & 0xffff}
}

// Operations.
const (
	OpNop    = 0
	OpLaunch = 1
	OpCopy   = 2
	OpFill   = 3
	OpSignal = 4
	OpWait   = 5
	OpReplay = 6
)

// isWork says that an entry is for the device.
func (e *Entry) isWork() bool {
	switch e.op() {
	case OpLaunch, OpCopy, OpFill, OpReplay:
		return true
	}
	return false
}

// orderOnly is the flag of a wait after which the queue goes on however the point ended.
const orderOnly = 1

const (
	bindingBytes = 32
	patchBytes   = 32
	maxPatches   = 4096
	// maxArgBytes of one entry are taken; a launch with more exceeds a limit.
	maxArgBytes = maxPatches * patchBytes
)

// Form is the code with which an entry is refused for what it is by itself, and None if
// it is not.
func Form(e *Entry, arena []uint64) gpuerr.Code {
	_, code := form(e, arena)
	return code
}

// form says what is wrong with an entry by itself. arena is what the ring has for
// arguments; those of the entry are returned.
func form(e *Entry, arena []uint64) (args []uint64, code gpuerr.Code) {
	if e.op() > OpReplay || e.zero() != 0 || e.flags() != 0 && !(e.op() == OpWait && e.flags() == orderOnly) {
		return nil, gpuerr.Invalid
	}
	if e.op() == OpNop {
		if e[0]>>8 != 0 || e.object() != 0 || e.a() != 0 || e.b() != 0 || e.c() != 0 || e.d() != 0 {
			return nil, gpuerr.Invalid
		}
		return nil, gpuerr.None
	}
	if e.object() == 0 {
		return nil, gpuerr.Invalid
	}
	good := true
	switch e.op() {
	case OpLaunch:
		good = launchForm(e)
	case OpReplay:
		good = e.a() == 0 && e.b() == 0 && e.c() == 0 && e.count() <= maxPatches && e.argBytes() == patchBytes*e.count()
	case OpCopy:
		good = e.count() == 0 && e.b() != 0 && fits(e.a(), e.d()) && fits(e.c(), e.d())
	case OpFill:
		good = e.count() == 0 && e.b()>>32 == 0 && e.c() == 0 && e.a()%4 == 0 && e.d()%4 == 0 && fits(e.a(), e.d())
	default:
		good = e.count() == 0 && e.deadline() == 0 && e.b() == 0 && e.c() == 0 && e.d() == 0
	}
	if !good {
		return nil, gpuerr.Invalid
	}
	if e.op() != OpLaunch && e.op() != OpReplay {
		return nil, gpuerr.None
	}
	return arguments(e, arena)
}

// fits says that a range is not empty and does not reach beyond 2⁶⁴.
func fits(off, n uint64) bool { return n != 0 && off+n >= n }

func launchForm(e *Entry) bool {
	if e.argBytes() != bindingBytes*e.count()+e.inline() {
		return false
	}
	g, b := e.grid(), e.block()
	if b == [3]uint32{} {
		if g == b {
			return true
		}
		b = [3]uint32{1, 1, 1}
	}
	bits := 0
	for _, n := range [...]uint32{g[0], g[1], g[2], b[0], b[1], b[2]} {
		if n == 0 {
			return false
		}
		for ; n > 0; n >>= 1 {
			bits++
		}
	}
	if bits <= 64 { // a product has no more bits than its factors together
		return true
	}
	threads := big.NewInt(1)
	for _, n := range [...]uint32{g[0], g[1], g[2], b[0], b[1], b[2]} {
		threads.Mul(threads, big.NewInt(int64(n)))
	}
	return threads.BitLen() <= 64
}

// arguments are looked at as far as they are what they are by themselves.
func arguments(e *Entry, arena []uint64) ([]uint64, gpuerr.Code) {
	off, n := uint64(e.argOff()), uint64(e.argBytes())
	if off%8 != 0 || off+n > 8*uint64(len(arena)) {
		return nil, gpuerr.Invalid
	}
	if n > maxArgBytes {
		return nil, gpuerr.LaunchLimit
	}
	args := arena[off/8 : (off+n+7)/8]
	if e.op() == OpLaunch {
		for i := range uint64(e.count()) {
			if w := args[4*i:]; w[0] == 0 || w[1]+w[2] < w[2] || w[3] != 0 {
				return nil, gpuerr.Invalid
			}
		}
	}
	return args, gpuerr.None
}
