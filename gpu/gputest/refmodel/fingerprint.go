package refmodel

import "encoding/binary"

// Fingerprint sums up what the device is told of one piece of work. The device of a
// differential test sums up what it is told the same way, and tells the sum as the time
// that the work took: so it comes back in the completion and in the books.
type Fingerprint uint64

// Begin is the fingerprint of nothing.
const Begin Fingerprint = 0x9e3779b97f4a7c15

// Add adds a word.
func (f *Fingerprint) Add(w uint64) {
	h := (uint64(*f) ^ w) * 0xd6e8feb86659fd93
	*f = Fingerprint(h ^ h>>32)
}

// AddBytes adds bytes, and how many.
func (f *Fingerprint) AddBytes(b []byte) {
	f.Add(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		f.Add(binary.LittleEndian.Uint64(b))
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		f.Add(binary.LittleEndian.Uint64(last[:]))
	}
}

// AddDims adds grid or block.
func (f *Fingerprint) AddDims(x, y, z uint32) {
	f.Add(uint64(x) | uint64(y)<<32)
	f.Add(uint64(z))
}

// Nanos is the fingerprint as a time: below a second, and not 0.
func (f Fingerprint) Nanos() uint64 { return 1 + uint64(f)>>35 }

// Work of the device, in a fingerprint.
const (
	workLaunch = OpLaunch
	workCopy   = OpCopy
	workFill   = OpFill
	workList   = OpReplay
)
