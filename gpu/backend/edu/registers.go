package edu

import (
	"time"

	"capgpu/gpuerr"
)

// Registers of BAR 0: QEMU docs/specs/edu.rst (7.2) and hw/misc/edu.c. Below 0x80 they
// take 4-byte accesses only; the others are 64 bits wide, and a 4-byte write sets the
// upper half to 0.
const (
	regID              = 0x00
	regLiveness        = 0x04 // reads as the inverse of what was written
	regFactorial       = 0x08
	regStatus          = 0x20
	regInterruptStatus = 0x24
	regAcknowledge     = 0x64
	regSource          = 0x80
	regDestination     = 0x88
	regCount           = 0x90
	regCommand         = 0x98

	registerBytes = 0xa0

	identity = 0x010000ed // version 1.0 and 0xed

	statusComputing = 0x01
	statusInterrupt = 0x80 // raise an interrupt after a factorial

	commandRun       = 0x01
	commandToMemory  = 0x02 // from the board to memory; else the other way
	commandInterrupt = 0x04 // raise an interrupt, status 0x100, when done

	// allOnes is what a device that has left the bus answers.
	allOnes = 0xffff_ffff
)

const (
	// dmaBits is how many bits of an address the device has; it cuts off the others.
	dmaBits = 28
	// boardBuffer is the device's address of its own memory, of 4096 bytes.
	boardBuffer = 0x40000
	// stepBytes is what one transfer moves. QEMU 7.2 ends the whole machine when a
	// transfer is empty, or ends where the buffer does (edu_check_range).
	stepBytes = 2048
)

// How long the engine waits for an interrupt before it looks by itself, and how often
// after that. A transfer takes 100 ms, a factorial of the largest operand a few.
const (
	transferPatience  = 150 * time.Millisecond
	factorialPatience = 20 * time.Millisecond
	pollEvery         = 20 * time.Millisecond
)

// reaches reports whether the device can address all of [iova, iova+bytes).
func reaches(iova, bytes uint64) bool {
	const end = uint64(1) << dmaBits
	return iova < end && bytes <= end-iova
}

// read reads a register. ok is false when the device is gone, which is then known.
func (d *Device) read(off uint64) (v uint32, ok bool) {
	v, err := d.regs.Read32(off)
	if err != nil {
		d.vanish("register %#x cannot be read: %v", off, err)
		return 0, false
	}
	if v == allOnes && !d.present() {
		return 0, false
	}
	return v, true
}

// write writes a register. ok is false when the device is gone, as far as a write can
// tell.
func (d *Device) write(off uint64, v uint32) (ok bool) {
	if err := d.regs.Write32(off, v); err != nil {
		d.vanish("register %#x cannot be written: %v", off, err)
		return false
	}
	return true
}

// present looks at the identification. A device that is gone is made known.
func (d *Device) present() bool {
	id, err := d.regs.Read32(regID)
	switch {
	case err != nil:
		d.vanish("its identification cannot be read: %v", err)
	case id == allOnes:
		d.vanish("it reads as all ones: it has left the bus")
	case id != identity:
		d.vanish("it identifies itself as %#x, not as %#x any more", id, identity)
	default:
		return true
	}
	return false
}

// busy names what the device is doing; "" is nothing.
func (d *Device) busy() (what string, err error) {
	command, err := d.regs.Read32(regCommand)
	if err != nil {
		return "", err
	}
	status, err := d.regs.Read32(regStatus)
	switch {
	case err != nil:
		return "", err
	case command == allOnes && status == allOnes:
		return "", gpuerr.New(gpuerr.DeviceLost, "the device reads as all ones: it has left the bus")
	case command&commandRun != 0:
		return "a transfer under way", nil
	case status&statusComputing != 0:
		return "a factorial under way", nil
	}
	return "", nil
}

// await waits until a bit of a register is clear: whatever was asked for, the device
// does not do it any more. patience is how long the interrupt may take. It is false
// when the device is gone.
func (d *Device) await(off uint64, bit uint32, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	polled := false
	for {
		select {
		case <-d.look:
			polled = false
		case <-timer.C:
			polled = true
			timer.Reset(pollEvery)
		case <-d.gone:
			return false
		}
		v, ok := d.read(off)
		if !ok {
			return false
		}
		if v&bit == 0 {
			if polled {
				d.counts.lost.Add(1)
			}
			d.progress.Add(1)
			return true
		}
	}
}
