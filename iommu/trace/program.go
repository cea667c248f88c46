package trace

import (
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The stack of a program, below the frame pointer.
const (
	stackTID    = -8 // struct bpf_pidns_info: pid, tgid
	stackTGID   = -4
	stackFrames = -8 - frames*8
)

// frames is how many return addresses, from the tracepoint outwards, are looked at
// for vfio's. The program, the tracepoint and the IOMMU core are up to five of
// them; an interrupt on top of a vfio call has more above that call.
const frames = 8

// Indices of counters.
const (
	counterLost    = iota // events, for which there was no room
	counterForeign        // events, that vfio did not ask for
	counters
)

const (
	ringAvailable = 0 // BPF_RB_AVAIL_DATA, BPF_RB_NO_WAKEUP, BPF_RB_FORCE_WAKEUP (linux/bpf.h, Linux 6.12)
	noWakeup      = 1
	forceWakeup   = 2
)

// maps are the maps that the programs share with this process.
type maps struct {
	events   *ebpf.Map // ring of Event
	watched  *ebpf.Map // set of TGIDs
	text     *ebpf.Map // one [start, end) of vfio's text; all zero: not known
	counters *ebpf.Map // of 64 bits each, all in one value
}

// namespace identifies a PID namespace to the kernel.
type namespace struct{ device, inode uint64 }

// mapProgram writes an Event for map(iova, paddr, size) and for unmap(iova, size,
// unmapped); ctx holds the arguments of the tracepoint, 8 bytes each.
//
//	R6 ctx, R7 vfio's text or not, R8 time, R9 the event
func mapProgram(k Kind, m *maps, ns namespace, ringBytes uint32) asm.Instructions {
	p := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R8, asm.R0),

		// The process: as our PID namespace numbers it, or, for a process of another one, the
		// first namespace.
		asm.LoadImm(asm.R1, int64(ns.device), asm.DWord),
		asm.LoadImm(asm.R2, int64(ns.inode), asm.DWord),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stackTID),
		asm.Mov.Imm(asm.R4, 8),
		asm.FnGetNsCurrentPidTgid.Call(),
		asm.JEq.Imm(asm.R0, 0, "watched"),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, stackTID, asm.R0, asm.Word),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, stackTGID, asm.R0, asm.Word),

		asm.LoadMapPtr(asm.R1, m.watched.FD()).WithSymbol("watched"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackTGID),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
	}
	p = append(p, vfioOnly(m)...)
	p = append(p,
		asm.LoadMapPtr(asm.R1, m.events.FD()).WithSymbol("record"),
		asm.Mov.Imm(asm.R2, eventBytes),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "lost"),
		asm.Mov.Reg(asm.R9, asm.R0),

		asm.StoreMem(asm.R9, offTime, asm.R8, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackTID, asm.Word),
		asm.StoreMem(asm.R9, offTID, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, stackTGID, asm.Word),
		asm.StoreMem(asm.R9, offTGID, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R1, int32(k)),
		asm.StoreMem(asm.R9, offKind, asm.R1, asm.DWord), // and the four bytes after it
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.StoreMem(asm.R9, offIOVA, asm.R1, asm.DWord),
	)
	if k == Map {
		p = append(p,
			asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord),
			asm.StoreMem(asm.R9, offBytes, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.R9, offUnmapped, asm.R1, asm.DWord),
		)
	} else {
		p = append(p,
			asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
			asm.StoreMem(asm.R9, offBytes, asm.R1, asm.DWord),
			asm.LoadMem(asm.R1, asm.R6, 16, asm.DWord),
			asm.StoreMem(asm.R9, offUnmapped, asm.R1, asm.DWord),
		)
	}

	return append(p,
		// A wake-up costs more than the event: only when it is needed.
		asm.LoadMapPtr(asm.R1, m.events.FD()),
		asm.Mov.Imm(asm.R2, ringAvailable),
		asm.FnRingbufQuery.Call(),
		asm.Mov.Imm(asm.R2, noWakeup),
		asm.JLT.Imm(asm.R0, int32(ringBytes/2), "submit"),
		asm.Mov.Imm(asm.R2, forceWakeup),
		asm.Mov.Reg(asm.R1, asm.R9).WithSymbol("submit"),
		asm.FnRingbufSubmit.Call(),
		asm.Ja.Label("exit"),

		asm.LoadMapValue(asm.R1, m.counters.FD(), 8*counterLost).WithSymbol("lost"),
		asm.Mov.Imm(asm.R2, 1).WithSymbol("count"),
		asm.AddAtomic.Mem(asm.R1, asm.R2, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	)
}

// vfioOnly goes on at "record" with calls that vfio asked for, or if that cannot be decided;
// it counts all others.
func vfioOnly(m *maps) asm.Instructions {
	p := asm.Instructions{
		asm.LoadMapValue(asm.R7, m.text.FD(), 0),
		asm.LoadMem(asm.R9, asm.R7, 8, asm.DWord), // end
		asm.JEq.Imm(asm.R9, 0, "record"),
		asm.LoadMem(asm.R7, asm.R7, 0, asm.DWord), // start
		asm.Mov.Imm(asm.R1, 0),
	}
	for i := range frames {
		p = append(p, asm.StoreMem(asm.RFP, int16(stackFrames+8*i), asm.R1, asm.DWord))
	}

	p = append(p,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, stackFrames),
		asm.Mov.Imm(asm.R3, frames*8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnGetStack.Call(),
		asm.JSLT.Imm(asm.R0, 0, "record"), // not known
	)
	for i := range frames {
		p = append(p,
			asm.LoadMem(asm.R1, asm.RFP, int16(stackFrames+8*i), asm.DWord).WithSymbol(frame(i)),
			asm.JLT.Reg(asm.R1, asm.R7, frame(i+1)),
			asm.JLT.Reg(asm.R1, asm.R9, "record"),
		)
	}

	return append(p,
		asm.LoadMapValue(asm.R1, m.counters.FD(), 8*counterForeign).WithSymbol(frame(frames)),
		asm.Ja.Label("count"),
	)
}

func frame(i int) string { return "frame" + strconv.Itoa(i) }
