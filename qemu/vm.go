package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// VM is one boot. It is plain data; Run does the work.
type VM struct {
	QEMU      string // "" = $QEMU, else qemu-system-x86_64
	Kernel    string // path of the image
	Initrd    string // path of the initramfs
	MemoryMiB int
	CPUs      int
	Append    []string      // added to the kernel command line
	Devices   []string      // added -device arguments
	Timeout   time.Duration // for everything from start to exit
	Line      func(string)  // called for each line of the console as it comes; may be nil
}

// maxLineBytes and maxLines bound what a runaway guest can make us keep.
const (
	maxLineBytes = 8 << 10
	maxLines     = 100_000
)

// drainTime is for reading what QEMU had already written when it exited.
const drainTime = 2 * time.Second

// fatalWords end a run at once: after them nothing useful comes, and under KVM
// QEMU would only sit there paused until the time is up.
var fatalWords = []string{"KVM internal error", "Kernel panic - not syncing", "qemu: fatal"}

// escapes are what the firmware sends to a terminal before the kernel starts.
var escapes = regexp.MustCompile("\x1b(\\[[0-9;?=]*[A-Za-z]|c)")

// Run boots the machine and returns the console's lines, complete or not. The
// error is nil only if QEMU exited by itself, with status 0, in time, and no
// fatal word was seen. It says nothing about what the guest found out: see
// Golden. When Run returns, QEMU and its process group are gone.
func (v VM) Run(ctx context.Context) (Transcript, error) {
	// The kernel sends the parent-death signal when the *thread* that forked
	// ends, so that thread must be ours until QEMU is reaped.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, cancel := context.WithTimeoutCause(ctx, v.Timeout, fmt.Errorf("the guest did not power off within %v", v.Timeout))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	console := &console{line: v.Line, fail: fail}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, v.qemu(), v.args()...)
	cmd.Stdout, cmd.Stderr = in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		in.Close()
		return nil, fmt.Errorf("start %s (Debian: apt-get install qemu-system-x86 seabios; or name one by QEMU=): %w", v.qemu(), err)
	}
	in.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		console.runRead(out)
	}()
	// The process stays a zombie until cmd.Wait, so its group's number is still
	// ours when whatever it left behind is killed.
	waitExited(cmd.Process.Pid)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	exit := cmd.Wait()
	// Whoever else holds the pipe's other end must not hold us.
	_ = out.SetReadDeadline(time.Now().Add(drainTime))
	<-done

	transcript := console.take()
	if cause := context.Cause(ctx); cause != nil {
		return transcript, cause
	}
	if exit != nil {
		return transcript, fmt.Errorf("qemu: %w", exit)
	}
	return transcript, nil
}

// waitExited waits for the end of a child without reaping it.
func waitExited(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (v VM) qemu() string {
	if v.QEMU != "" {
		return v.QEMU
	}
	if q := os.Getenv("QEMU"); q != "" {
		return q
	}
	return "qemu-system-x86_64"
}

// args: the IOMMU comes before every other device or QEMU leaves them out of
// it. no_timer_check: with interrupt remapping an SMP boot under TCG sometimes
// finds that the timer "doesn't work through Interrupt-remapped IO-APIC".
func (v VM) args() []string {
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", fmt.Sprint(v.CPUs), "-m", fmt.Sprint(v.MemoryMiB),
		"-machine", "q35", "-device", "intel-iommu,intremap=on,caching-mode=on",
	}
	for _, d := range v.Devices {
		args = append(args, "-device", d)
	}
	line := append([]string{"console=ttyS0", "quiet", "intel_iommu=on", "no_timer_check", "panic=-1", "oops=panic"}, v.Append...)
	return append(args,
		"-nodefaults", "-display", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", v.Kernel, "-initrd", v.Initrd, "-append", strings.Join(line, " "))
}

// console collects lines as they come.
type console struct {
	line func(string)
	fail context.CancelCauseFunc

	mu sync.Mutex
	// +checklocks:mu
	lines Transcript
}

func (c *console) runRead(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLineBytes)
	for {
		raw, err := in.ReadSlice('\n')
		if len(raw) > 0 {
			c.add(clean(string(raw)))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (c *console) add(line string) {
	c.mu.Lock()
	full := len(c.lines) >= maxLines
	if !full {
		c.lines = append(c.lines, line)
	}
	c.mu.Unlock()
	if full {
		c.fail(fmt.Errorf("the guest printed more than %d lines", maxLines))
		return
	}
	if c.line != nil {
		c.line(line)
	}
	for _, w := range fatalWords {
		if strings.Contains(line, w) {
			c.fail(fmt.Errorf("the guest died: %s", line))
		}
	}
}

func (c *console) take() Transcript {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// clean drops what a serial line has beyond text.
func clean(raw string) string {
	s := escapes.ReplaceAllString(raw, "")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
