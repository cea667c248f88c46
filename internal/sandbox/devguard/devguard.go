// Package devguard keeps processes off every device node by a cgroup-device eBPF
// program. It is a package of its own so that the processes that are confined do
// not contain a loader of such programs.
package devguard

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// guard is a program and what ties it to a cgroup.
type guard struct {
	program *ebpf.Program
	link    link.Link
}

// Attach keeps every process below the cgroup, a directory of cgroup v2, from opening any
// device node but the character devices of the list (major, minor), and from making any, until
// it is closed. Open descriptors stay usable: those of the function that a driver is granted,
// and its standard input.
//
// Programs of a cgroup and of those above it must all agree. So a cgroup with a list of its
// own is not below one without.
func Attach(cgroup string, but [][2]uint32) (io.Closer, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "capgpu_no_dev", Type: ebpf.CGroupDevice, License: "GPL", Instructions: instructions(but),
	})
	if err != nil {
		return nil, fmt.Errorf("load a cgroup-device program (it takes CAP_BPF or CAP_SYS_ADMIN): %w", err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupDevice, Program: program})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach a cgroup-device program: %w", err), program.Close())
	}
	return &guard{program, l}, nil
}

func (g *guard) Close() error { return errors.Join(g.link.Close(), g.program.Close()) }

// The context of a program: struct bpf_cgroup_dev_ctx, and BPF_DEVCG_* (linux/bpf.h, 6.12).
const (
	accessOff, majorOff, minorOff = 0, 4, 8

	typeMask   = 0xffff // of the access
	typeChar   = 2
	accessMake = 1 << 16
)

// instructions are a program that returns 1 for what is allowed, else 0.
func instructions(but [][2]uint32) asm.Instructions {
	if len(but) == 0 {
		return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	}

	all := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, accessOff, asm.Word),
		asm.LoadMem(asm.R4, asm.R1, majorOff, asm.Word),
		asm.LoadMem(asm.R5, asm.R1, minorOff, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R2),
		asm.And.Imm(asm.R3, accessMake),
		asm.JNE.Imm(asm.R3, 0, "no"),
		asm.And.Imm(asm.R2, typeMask),
		asm.JNE.Imm(asm.R2, typeChar, "no"),
	}
	for i, d := range but {
		next := fmt.Sprintf("after%d", i)
		all = append(all,
			asm.JNE.Imm(asm.R4, int32(d[0]), next),
			asm.JEq.Imm(asm.R5, int32(d[1]), "yes"),
			asm.Mov.Imm(asm.R0, 0).WithSymbol(next),
		)
	}
	return append(all,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("no"),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("yes"),
		asm.Return(),
	)
}
