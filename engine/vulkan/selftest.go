package vulkan

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
)

// selfTestRounds is more than some drivers do: Mesa before 25 ends each loop after 65,535
// rounds, and says nothing.
const selfTestRounds = 200_000

// selfTest runs a kernel with a known answer over imported memory.
func (d *Device) selfTest() error {
	pipe, err := d.kernel("rounds", 1, 4)
	if err != nil {
		return err
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map a page: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	mem, err := d.Import(page)
	if err != nil {
		return err
	}
	defer func() { _ = mem.Free() }()

	binary.LittleEndian.PutUint32(page, selfTestRounds)
	l, err := d.record([]host.Entry{{
		Entry: &wire.Entry{
			Op: wire.OpLaunch, Grid: program.Dim3{X: 1, Y: 1, Z: 1},
			Spans: []wire.Span{{Length: 8}}, Access: []program.Access{program.ReadWrite},
		},
		Pipeline: pipe, Memory: []host.Memory{mem},
	}})
	if err != nil {
		return err
	}
	defer func() { _ = l.Free() }()
	if err := d.Submit(l); err != nil {
		return err
	}
	r, err := d.Wait()
	if err != nil {
		return err
	}

	switch rounds := binary.LittleEndian.Uint32(page[4:]); {
	case rounds != selfTestRounds:
		return fmt.Errorf("its driver (%s) ends a loop of %d rounds after %d (Mesa before 25 does); programs would end early with a wrong result", d.Driver, selfTestRounds, rounds)
	case r.Early || r.Skipped || r.Begun != 1 || r.DeviceTime <= 0:
		return fmt.Errorf("its driver (%s) runs a kernel of one lane wrongly: %+v", d.Driver, r)
	}
	return nil
}
