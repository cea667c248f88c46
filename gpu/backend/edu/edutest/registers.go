package edutest

import (
	"time"

	"capgpu/ddf"
)

// The device's memory, as its DMA engine addresses it.
const (
	boardStart = 0x40000
	boardBytes = 4096
)

const (
	irqFactorial = 0x001
	irqTransfer  = 0x100

	statusComputing = 0x01
	statusInterrupt = 0x80

	commandRun       = 1
	commandToMemory  = 2
	commandInterrupt = 4
)

// registers hold what hw/misc/edu.c holds.
type registers struct {
	liveness, fact, status, irq       uint32
	source, destination, count, start uint64
}

// Read32 implements fake.Registers.
func (m *Model) Read32(off uint64) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.regs
	switch off {
	case 0x00:
		if m.trouble.Identity != 0 {
			return m.trouble.Identity
		}
		return 0x010000ed
	case 0x04:
		return r.liveness
	case 0x08:
		return r.fact
	case 0x20:
		return r.status
	case 0x24:
		return r.irq
	case 0x80:
		return uint32(r.source)
	case 0x88:
		return uint32(r.destination)
	case 0x90:
		return uint32(r.count)
	case 0x98:
		return uint32(r.start)
	}
	return 0xffffffff
}

// Write32 implements fake.Registers.
func (m *Model) Write32(off uint64, v uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.regs
	if off >= 0x80 && r.start&commandRun != 0 {
		return // they cannot be changed meanwhile
	}
	switch off {
	case 0x04:
		r.liveness = ^v
	case 0x08:
		if r.status&statusComputing == 0 {
			r.fact, r.status = v, r.status|statusComputing
			m.timers[1] = m.after(m.o.FactorialTime, m.endFactorial)
		}
	case 0x20:
		r.status = r.status&^statusInterrupt | v&statusInterrupt
	case 0x60:
		m.raiseLocked(v)
	case 0x64:
		r.irq &^= v
	case 0x80:
		r.source = uint64(v)
	case 0x88:
		r.destination = uint64(v)
	case 0x90:
		r.count = uint64(v)
	case 0x98:
		if v&commandRun != 0 {
			r.start = uint64(v)
			m.timers[0] = m.after(m.o.TransferTime, m.endTransfer)
		}
	}
}

// after is a timer, but of a device that is stuck.
//
// +checklocks:m.mu
func (m *Model) after(d time.Duration, f func()) *time.Timer {
	if m.trouble.Stuck || m.off {
		return nil
	}
	return time.AfterFunc(d, f)
}

// busyLocked tells of the transfer (0) and the factorial (1).
//
// +checklocks:m.mu
func (m *Model) busyLocked(i int) bool {
	if i == 0 {
		return m.regs.start&commandRun != 0
	}
	return m.regs.status&statusComputing != 0
}

// +checklocks:m.mu
func (m *Model) raiseLocked(why uint32) {
	m.regs.irq |= why
	if v := m.fn.Vector(0); v != nil && !m.trouble.LoseInterrupts && m.regs.irq != 0 {
		v.Raise()
	}
}

// stays reports whether something begun does not end now.
//
// +checklocks:m.mu
func (m *Model) stays(i int) bool {
	m.timers[i] = nil
	return m.trouble.Stuck || m.off
}

// endTransfer is edu_dma_timer.
func (m *Model) endTransfer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stays(0) {
		return
	}
	r := &m.regs
	toMemory := r.start&commandToMemory != 0
	memory, device := ddf.IOVA(r.source), r.destination
	if toMemory {
		memory, device = ddf.IOVA(r.destination), r.source
	}
	// edu_check_range, which ends the machine.
	if end := device + r.count; device < boardStart || end <= device || end >= boardStart+boardBytes {
		m.violate("a transfer of %d bytes at device address %#x ends the machine", r.count, device)
	} else {
		m.moveLocked(memory&(1<<28-1), m.board[device-boardStart:end-boardStart], toMemory)
	}
	r.start &^= commandRun
	m.transfers++
	if r.start&commandInterrupt != 0 {
		m.raiseLocked(irqTransfer)
	}
}

// moveLocked is the access of memory. A refused read answers zeros, a refused write is
// lost.
//
// +checklocks:m.mu
func (m *Model) moveLocked(iova ddf.IOVA, board []byte, toMemory bool) {
	refuse := &m.trouble.RefuseReads
	if toMemory {
		refuse = &m.trouble.RefuseWrites
	}
	if *refuse > 0 {
		*refuse--
	} else if m.fn.Pool().DMA(iova, uint64(len(board)), func(memory []byte) {
		if toMemory {
			copy(memory, board)
		} else {
			copy(board, memory)
		}
	}) {
		return
	}
	m.faults = append(m.faults, Fault{iova, toMemory})
	if !toMemory {
		clear(board)
	}
}

// endFactorial is edu_fact_thread.
func (m *Model) endFactorial() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stays(1) {
		return
	}
	r := &m.regs
	result := uint32(1)
	for n := r.fact; n > 0; n-- {
		result *= n
	}
	r.fact = result
	r.status &^= statusComputing
	if r.status&statusInterrupt != 0 {
		m.raiseLocked(irqFactorial)
	}
}
