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

// Attach keeps every process below the cgroup, a directory of cgroup v2, from opening or
// making a device node of any file mode, until it is closed. Open descriptors stay usable:
// those of the function that a driver is granted, and its standard input.
func Attach(cgroup string) (io.Closer, error) {
	// struct bpf_cgroup_dev_ctx (linux/bpf.h) is not even looked at: 0 refuses.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "capgpu_no_dev", Type: ebpf.CGroupDevice, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
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
