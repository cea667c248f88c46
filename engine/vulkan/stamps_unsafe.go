package vulkan

import (
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"capgpu/engine/vk"
)

// stamps are two time stamps: when a run begins, all before it has ended, and when it has
// ended itself. The device copies them to memory that the host sees: to ask the library for
// them waits for all later runs on some drivers (lavapipe).
type stamps struct {
	pool  vk.Handle
	first uint32
	seen  *block // two u64 at 8 · first
}

// stampsAtOnce is how many pairs are made together.
const stampsAtOnce = 256

func (d *Device) takeStamps() (stamps, error) {
	if len(d.stamps) == 0 {
		ci := vk.QueryPoolCreateInfo{Head: vk.Head{SType: vk.TypeQueryPoolCreateInfo}, Type: vk.QueryTypeTimestamp, Count: 2 * stampsAtOnce}
		pool, err := d.kept("QueryPool", unsafe.Pointer(&ci))
		if err != nil {
			return stamps{}, err
		}
		seen, err := d.keptBlock(16*stampsAtOnce, readMemory)
		if err != nil {
			return stamps{}, err
		}
		for i := range uint32(stampsAtOnce) {
			d.stamps = append(d.stamps, stamps{pool, 2 * i, &seen})
		}
	}
	last := len(d.stamps) - 1
	s := d.stamps[last]
	d.stamps = d.stamps[:last]
	return s, nil
}

func (d *Device) putStamps(s stamps) {
	if s.pool != 0 {
		d.stamps = append(d.stamps, s)
	}
}

func (d *Device) resetStamps(c uintptr, s stamps) {
	d.calls.resetQueries.Call(c, uintptr(s.pool), uintptr(s.first), 2)
}

// stamp writes the i-th of them when all before it has ended.
func (d *Device) stamp(c uintptr, s stamps, i uint32) {
	d.calls.writeStamp.Call(c, vk.StageBottomOfPipe, uintptr(s.pool), uintptr(s.first+i))
}

// showStamps has the host see them.
func (d *Device) showStamps(c uintptr, s stamps) {
	d.calls.copyQueries.Call(c, uintptr(s.pool), uintptr(s.first), 2, uintptr(s.seen.buffer), uintptr(8*s.first), 8, vk.QueryResult64|vk.QueryResultWait)
}

// clear makes them zero, before a run.
func (s stamps) clear() { clear(s.seen.mapped[8*s.first:][:16]) }

// written reports whether the later one is there.
func (s stamps) written() bool {
	return s.seen.load(int(8*s.first+8))|s.seen.load(int(8*s.first+12)) != 0
}

// deviceTime is the time between them, of a run that has ended. They come last in a run: while
// they are zero, nothing of it is believed.
func (d *Device) deviceTime(s stamps) (time.Duration, error) {
	at := s.seen.mapped[8*s.first:][:16]
	from, to := binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint64(at[8:])
	if from == 0 || to == 0 {
		return 0, errors.New("a run has ended, and its time stamps were not written")
	}
	steps := (to - from) & (1<<d.stampBits - 1) // a shift by 64 makes it all bits
	return time.Duration(float64(steps) * d.period), nil
}
