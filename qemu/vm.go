package qemu

import (
	"bufio"
	"cmp"
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

	"capgpu/qemu/guest/boot"
	"capgpu/qemu/qmp"
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
	Functions int           // edu functions, each behind a root port of its own: edu0, edu1, …
	Ports     []Port        // where the guest can write to us
	Timeout   time.Duration // for everything from start to exit
	Boot      time.Duration // how long it may be silent before it has printed boot.Ready; 0 = Timeout
	Silence   time.Duration // for how long it may say nothing, from its first line on; 0 = Timeout
	Line      func(string)  // called for each line of the console as it comes, one at a time; may be nil
	Again     func()        // called before the machine is booted again: earlier output of Ports and Line does not count any more; may be nil

	// Monitor, if there is one, runs beside the machine with its monitor; its error
	// is the run's. Its context ends with the machine.
	Monitor func(ctx context.Context, monitor *qmp.Client) error
}

// maxLineBytes and maxLines bound the memory for a runaway guest's output.
const (
	maxLineBytes = 8 << 10
	maxLines     = 100_000
)

// drainTime is for reading what QEMU had already written when it exited.
const drainTime = 2 * time.Second

// fatalWords end a run at once: after them nothing useful comes, and under KVM
// QEMU would only sit there paused until the time is up.
var fatalWords = []string{"KVM internal error", "Kernel panic - not syncing", "qemu: fatal"}

// BootTime is for the boot of one of our guests, which says nothing while it boots, and takes
// 2 to 4 s on two cores.
const BootTime = 90 * time.Second

// ErrTimeout: a guest took longer than its time, or was silent for too long.
var ErrTimeout = errors.New("the guest did not power off")

// errNoBoot is an ErrTimeout of a guest that has not got to doing anything of ours.
var errNoBoot = fmt.Errorf("%w: it has not booted", ErrTimeout)

// escapes are the firmware's codes for a terminal before the kernel starts.
var escapes = regexp.MustCompile("\x1b(\\[[0-9;?=]*[A-Za-z]|c)")

// Run boots the machine and returns the console's lines, complete or not. The error is nil
// only if QEMU exited by itself, with status 0, in time, and no fatal word was seen. It says
// nothing about the guest's own findings: see Golden. A machine that dies of a flaw of the
// emulator is booted again, from the start, and Line and Again are called; the lines returned
// are the last boot's. When Run returns, QEMU and its process group are gone.
func (v VM) Run(ctx context.Context) (Transcript, error) {
	for boots := 1; ; boots++ {
		transcript, err := v.boot(ctx)
		if err == nil || boots == maxBoots {
			return transcript, err
		}
		flaw := transcript.flaw()
		if errors.Is(err, errNoBoot) {
			flaw = "stood still, or was too slow,"
		}
		if flaw == "" {
			return transcript, err
		}
		if v.Line != nil {
			v.Line(fmt.Sprintf("qemu: the emulator %s; this says nothing about the guest, which is booted again: %v", flaw, err))
		}
		if v.Again != nil {
			v.Again()
		}
	}
}

// boot is one boot of Run.
func (v VM) boot(ctx context.Context) (Transcript, error) {
	// The kernel sends the parent-death signal when the *thread* that forked
	// ends, so that thread must be ours until QEMU is reaped.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	// QEMU's own output must not tear a line of the guest, so it has a pipe of its own.
	console := &console{line: v.Line, fail: fail, spoke: make(chan struct{}, 1)}
	out, in, err := pipes()
	if err != nil {
		return nil, err
	}

	defer closeAll(out[:])
	links, err := v.links(console.heard)
	if err != nil {
		closeAll(in[:])
		return nil, err
	}

	defer links.close()
	cmd := exec.CommandContext(ctx, v.qemu(), append(v.args(), links.args()...)...)
	cmd.Stdout, cmd.Stderr = in[0], in[1]
	cmd.ExtraFiles = links.theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		closeAll(in[:])
		return nil, fmt.Errorf("start %s (Debian: apt-get install qemu-system-x86 seabios; or name one by QEMU=): %w", v.qemu(), err)
	}

	closeAll(in[:])
	links.started(ctx, fail)
	var read sync.WaitGroup
	for _, r := range out {
		read.Go(func() { console.runRead(r) })
	}

	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { v.runWatch(watched, cmd.Process.Pid, console, links, fail) })

	// The process stays a zombie until cmd.Wait, so its group's number is still ours when the
	// processes that it left behind are killed.
	waitExited(cmd.Process.Pid)
	stop()
	watch.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	exit := cmd.Wait()

	// Other processes that hold the pipe's other end must not delay us.
	for _, r := range out {
		_ = r.SetReadDeadline(time.Now().Add(drainTime))
	}

	read.Wait()
	links.drain()

	transcript := console.take()
	if cause := context.Cause(ctx); cause != nil {
		return transcript, cause
	}
	if exit != nil {
		return transcript, fmt.Errorf("qemu: %w", exit)
	}

	return transcript, nil
}

// runWatch inspects and ends a machine that has run out of time. It returns when ctx ends.
func (v VM) runWatch(ctx context.Context, pid int, c *console, l *links, fail context.CancelCauseFunc) {
	end := time.NewTimer(v.Timeout)
	defer end.Stop()
	booting := time.NewTimer(cmp.Or(v.Boot, v.Timeout))
	defer booting.Stop()
	var silent *time.Timer // from the first word on
	var silence <-chan time.Time
	look := time.NewTicker(lookTime) // of silence
	defer look.Stop()
	cause := fmt.Errorf("%w within %v", ErrTimeout, v.Timeout)
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			return
		case <-booting.C:
			if v.Boot == 0 || c.saidReady() {
				continue
			}
			cause = fmt.Errorf("%w, and has said nothing for %v", errNoBoot, v.Boot)
			waiting = false
		case <-c.spoke:
			booting.Reset(cmp.Or(v.Boot, v.Timeout))
			look.Reset(lookTime)
			if v.Silence == 0 {
				continue
			}
			if silent == nil {
				silent = time.NewTimer(v.Silence)
				defer silent.Stop()
				silence = silent.C
			}
			silent.Reset(v.Silence)
		case <-silence:
			cause = fmt.Errorf("%w, and has said nothing for %v", ErrTimeout, v.Silence)
			waiting = false
		case <-look.C:
			if cpu := deaf(ctx, v.CPUs, l.monitor.Load(), lookPause); cpu != "" {
				cause = fmt.Errorf("%w: processor %s is deaf to its timer", ErrTimeout, cpu)
				waiting = false
			}
		case <-end.C:
			waiting = false
		}
	}

	c.dissect()
	autopsy(ctx, pid, v.CPUs, l.monitor.Load(), c.add)
	fail(cause)
}

// pipes makes two.
func pipes() (out, in [2]*os.File, err error) {
	for i := range out {
		if out[i], in[i], err = os.Pipe(); err != nil {
			closeAll(out[:i])
			closeAll(in[:i])
			return out, in, err
		}
	}
	return out, in, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
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
// unknown_nmi_panic: see autopsy; panic_print has all tasks and processors printed
// (kernel-parameters.txt, Linux 6.12), of that panic and of any other.
func (v VM) args() []string {
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", fmt.Sprint(v.CPUs), "-m", fmt.Sprint(v.MemoryMiB),
		"-machine", "q35", "-device", "intel-iommu,intremap=on,caching-mode=on",
	}
	for _, d := range append(eduDevices(v.Functions), v.Devices...) {
		args = append(args, "-device", d)
	}
	line := append([]string{"console=ttyS0", "quiet", "intel_iommu=on", "no_timer_check", "panic=-1", "oops=panic", "unknown_nmi_panic", "panic_print=0x41"}, v.Append...)
	return append(args,
		"-nodefaults", "-display", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", v.Kernel, "-initrd", v.Initrd, "-append", strings.Join(line, " "))
}

// eduDevices are edu functions that can be unplugged, each alone behind a port and so alone
// in its IOMMU group, as 0000:01:00.0, 0000:02:00.0, …
func eduDevices(n int) []string {
	var devices []string
	for i := range n {
		devices = append(devices,
			fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d,slot=%d,addr=%#x", i, i+1, i+1, i+1),
			fmt.Sprintf("edu,id=edu%d,bus=port%d", i, i))
	}
	return devices
}

// console collects lines as they come.
type console struct {
	line  func(string)
	fail  context.CancelCauseFunc
	spoke chan struct{} // holds one after output

	mu sync.Mutex
	// +checklocks:mu
	lines Transcript
	// +checklocks:mu
	dissected bool // a panic is wanted
	// +checklocks:mu
	ready bool // boot.Ready was printed
}

// saidReady reports whether the guest has booted.
func (c *console) saidReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

// heard is called after output of the guest.
func (c *console) heard() {
	select {
	case c.spoke <- struct{}{}:
	default:
	}
}

// dissect is called before the guest is made to panic.
func (c *console) dissect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dissected = true
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
	c.heard()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) >= maxLines {
		c.fail(fmt.Errorf("the guest printed more than %d lines", maxLines))
		return
	}

	c.lines = append(c.lines, line)
	c.ready = c.ready || line == boot.Ready
	if c.line != nil {
		c.line(line)
	}
	if c.dissected {
		return
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

// clean drops everything but text from a serial line.
func clean(raw string) string {
	s := escapes.ReplaceAllString(raw, "")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
