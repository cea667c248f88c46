package vfio

import (
	"encoding/binary"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	uapi "capgpu/internal/uapi/vfio"
)

// Offsets and bits of configuration space: PCI Local Bus Specification 3.0, chapter 6, and
// include/uapi/linux/pci_regs.h.
const (
	configCommand  = 0x04
	configStatus   = 0x06
	configRevision = 0x08 // and class
	configCapPtr   = 0x34
	configHead     = 0x40 // capabilities follow

	commandMemory    = 1 << 1
	commandBusMaster = 1 << 2
	statusCaps       = 1 << 4

	capMSIX = 0x11

	maxCaps = 48 // of 4 bytes each, that is all of the space
)

// errGone says that the device has left the bus.
var errGone = gpuerr.New(gpuerr.DeviceLost, "the device has left the bus: it answers nothing but ones")

// config is the configuration space of a device, as vfio offers it.
type config struct {
	kernel uapi.Kernel
	fd     int
	off    int64 // of the region in fd
	bytes  uint64
}

func openConfig(k uapi.Kernel, fd int) (config, error) {
	r, err := uapi.ReadRegion(k, fd, uapi.RegionConfig)
	if err != nil {
		return config{}, err
	}
	if r.Size < 256 || r.Size > 4096 || r.Offset > math.MaxInt64-r.Size {
		return config{}, gpuerr.New(gpuerr.IO, "vfio: a configuration space of %d bytes at %#x cannot be", r.Size, r.Offset)
	}
	return config{k, fd, int64(r.Offset), r.Size}, nil
}

// read reads n bytes, 1 to 4, at off.
func (c config) read(off uint64, n int) (uint32, error) {
	if off > c.bytes || uint64(n) > c.bytes-off {
		return 0, gpuerr.New(gpuerr.IO, "vfio: %#x lies outside configuration space", off)
	}
	var b [4]byte
	got, err := c.kernel.Pread(c.fd, b[:n], c.off+int64(off))
	if err != nil {
		return 0, c.fail("read configuration space", err)
	}
	if got != n {
		return 0, gpuerr.New(gpuerr.IO, "vfio: read %d of %d bytes of configuration space", got, n)
	}
	return binary.LittleEndian.Uint32(b[:]), nil
}

func (c config) write16(off uint64, v uint16) error {
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], v)
	n, err := c.kernel.Pwrite(c.fd, b[:], c.off+int64(off))
	if err != nil {
		return c.fail("write configuration space", err)
	}
	if n != len(b) {
		return gpuerr.New(gpuerr.IO, "vfio: wrote %d of %d bytes of configuration space", n, len(b))
	}
	return nil
}

// fail distinguishes a device that has gone from other errors.
func (c config) fail(doing string, err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return errGone
	}
	return uapi.Error(doing, err)
}

// alive returns errGone when the device has left the bus. The vendor is not asked:
// vfio answers that one itself.
func (c config) alive() error {
	v, err := c.read(configRevision, 4)
	if err == nil && v == math.MaxUint32 {
		return errGone
	}
	return err
}

// msixTable finds the table of MSI-X: its BAR, its offset in there and its length in
// bytes, or false when the device has none.
func (c config) msixTable() (bar uint32, off, bytes uint64, found bool, err error) {
	status, err := c.read(configStatus, 2)
	if err != nil || status&statusCaps == 0 {
		return 0, 0, 0, false, err
	}

	at, err := c.read(configCapPtr, 1)
	for range maxCaps {
		at &^= 3
		if err != nil || at < configHead {
			return 0, 0, 0, false, err
		}
		head, err := c.read(uint64(at), 4)
		if err != nil {
			return 0, 0, 0, false, err
		}
		if head&0xff == capMSIX {
			table, err := c.read(uint64(at)+4, 4)
			entries := uint64(head>>16&0x7ff) + 1
			return table & 7, uint64(table &^ 7), 16 * entries, err == nil, err
		}
		at = head >> 8 & 0xff
	}

	return 0, 0, 0, false, gpuerr.New(gpuerr.IO, "vfio: the capabilities of the device form a circle")
}

// busMaster lets the device reach memory, or keeps it from it, with its registers
// enabled, and looks whether it is so.
func (f *Function) busMaster(on bool) error {
	if err := f.config.alive(); err != nil {
		return err
	}

	command, err := f.config.read(configCommand, 2)
	if err != nil {
		return err
	}

	want := uint16(command) | commandMemory
	if on {
		want |= commandBusMaster
	} else {
		want &^= commandBusMaster
	}

	if err := f.config.write16(configCommand, want); err != nil {
		return err
	}

	// The answer to this read follows every write to memory that the device had sent (PCI
	// Express Base Specification 4.0, 2.4.1), so that all writes under way have arrived.
	command, err = f.config.read(configCommand, 2)
	if err != nil {
		return err
	}
	if err := f.config.alive(); err != nil {
		return err
	}

	const both = commandMemory | commandBusMaster
	if uint16(command)&both != want&both {
		return gpuerr.New(gpuerr.IO, "vfio: %s does not take its command register: %#x was written, and it is %#x", f.identity.PCIAddress, want, command)
	}

	return nil
}
