package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend"
)

// attack carries out an order and says "done: …" if it succeeded, "refused: …" if not.
func (t *taken) attack(order string, own backend.Span) string {
	words := strings.Fields(order)
	if len(words) == 0 {
		return "refused: no order"
	}

	number := func(i int) uint64 {
		if i >= len(words) {
			return 0
		}
		n, _ := strconv.ParseUint(words[i], 0, 64)
		return n
	}
	switch words[0] {
	case "dma-write": // IOVA: from the board's buffer
		return report(t.move(boardBuffer, number(1), toMemory))
	case "dma-read": // IOVA: to the board's buffer, and on into the order's own memory
		err := t.move(number(1), boardBuffer, 0)
		if err == nil {
			err = t.move(boardBuffer, own.IOVA+orderBytes, toMemory)
		}
		return report(err)
	case "dma-storm": // COUNT: again and again, ignoring the core's answers
		for i := range number(1) {
			if err := t.move(boardBuffer, nowhere+i*moveBytes, toMemory); err != nil {
				return report(err)
			}
		}
		return "done"
	case "grants":
		return t.grantsAttack()
	case "syscall":
		if call := calls[words[1]]; call != nil {
			return report(call(int(number(2))))
		}
	}

	return "refused: no such attack: " + order
}

func report(err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	return "done"
}

// The device's registers (QEMU docs/specs/edu).
const (
	regSource      = 0x80
	regDestination = 0x88
	regCount       = 0x90
	regCommand     = 0x98

	boardBuffer = 0x40000
	start       = 1
	toMemory    = 2

	moveBytes  = 2048
	orderBytes = 4096 // of the binding: the rest is for data that an attack has read

	movePatience = 2 * time.Second

	nowhere = 0xf000000 // the device reaches 256 MiB; nothing is mapped that high
)

// move has the device move moveBytes, wherever that is.
func (t *taken) move(from, to uint64, direction uint32) error {
	regs := t.grants.Mmio[0]
	for _, w := range []struct {
		off uint64
		v   uint32
	}{{regSource, uint32(from)}, {regDestination, uint32(to)}, {regCount, moveBytes}, {regCommand, start | direction}} {
		if err := regs.Write32(w.off, w.v); err != nil {
			return err
		}
	}

	for end := time.Now().Add(movePatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		command, err := regs.Read32(regCommand)
		if err != nil {
			return err
		}
		if command&start == 0 {
			return nil
		}
	}

	return errors.New("the device does not end its transfer")
}

// grantsAttack asks the manager for more than was granted.
func (t *taken) grantsAttack() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var all []ddf.DMABuffer
	defer func() {
		for _, b := range all {
			_ = b.Free()
		}
	}()

	limit := t.grants.DMA.Usage().LimitBytes
	for got := uint64(0); got <= limit; got += 1 << 20 {
		b, err := t.grants.DMA.Alloc(ctx, 1<<20)
		if err != nil {
			break
		}
		all = append(all, b)
		if got == limit {
			return "done: more DMA memory than the limit"
		}
	}

	if _, err := t.grants.DMA.Alloc(ctx, 1<<40); err == nil {
		return "done: a TiB of DMA memory"
	}

	regs := t.grants.Mmio[0]
	for _, off := range []uint64{regs.Size(), regs.Size() + 4096, 1 << 40, ^uint64(3)} {
		if _, err := regs.Read32(off); err == nil {
			return fmt.Sprintf("done: read a register at %#x", off)
		}
		if err := regs.Write32(off, 1); err == nil {
			return fmt.Sprintf("done: wrote a register at %#x", off)
		}
	}

	if _, err := t.grants.Audit.Snapshot(0, 10); err != nil {
		return "refused: " + err.Error()
	}

	return "refused: quota and window hold"
}

// calls are system calls that no driver needs. The argument is a process to aim at, or
// 0.
var calls = map[string]func(target int) error{
	"open-vfio":   func(int) error { return open("/dev/vfio/vfio") },
	"open-mem":    func(int) error { return open("/dev/mem") },
	"open-proc":   func(pid int) error { return open(fmt.Sprintf("/proc/%d/mem", pid)) },
	"open-policy": func(int) error { return open("/etc/capgpu/hw.json") },
	"ioctl": func(int) error {
		for fd := range 64 { // every descriptor that there may be
			if _, err := unix.IoctlGetInt(fd, vfioDeviceReset); err == nil {
				return nil
			}
		}
		return errors.New("no descriptor takes it")
	},
	"mprotect": func(int) error {
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		return unix.Mprotect(mem, unix.PROT_READ|unix.PROT_EXEC)
	},
	"mmap-exec": func(int) error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		return err
	},
	"socket": func(int) error {
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		return err
	},
	"netlink": func(int) error {
		_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
		return err
	},
	"ptrace": unix.PtraceAttach,
	"kill":   func(pid int) error { return unix.Kill(pid, unix.SIGKILL) },
	"read-process": func(pid int) error {
		var b [8]byte
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	},
	"fork": func(int) error {
		_, err := os.StartProcess("/bin/gpuctl", []string{"gpuctl", "version"}, &os.ProcAttr{})
		return err
	},
	"unshare": func(int) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"mount":   func(int) error { return unix.Mount("none", "/", "tmpfs", 0, "") },
	"setuid":  func(int) error { return unix.Setresuid(0, 0, 0) },
	"module":  func(int) error { return unix.InitModule([]byte("module"), "") },
	"reboot":  func(int) error { return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) },
}

// vfioDeviceReset is VFIO_DEVICE_RESET (linux/vfio.h, 6.12).
const vfioDeviceReset = 0x3b6f

func open(path string) error {
	_, err := unix.Open(path, unix.O_RDWR, 0)
	return err
}
