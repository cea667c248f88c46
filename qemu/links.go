package qemu

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/qemu/qmp"
)

// Port is a way from the guest to us besides the console: a virtserialport. Its bytes come
// out unchanged.
type Port struct {
	Name string
	To   io.Writer // written to by one goroutine, until Run returns
}

// links are the socket pairs between us and QEMU: of each port, and last of the
// monitor. No path on the disk names them, so no two machines share one.
type links struct {
	vm     VM
	heard  func() // called after output of a port
	ours   []*os.File
	theirs []*os.File // descriptors 3, 4, … of QEMU
	stop   context.CancelFunc
	copied sync.WaitGroup

	monitor atomic.Pointer[qmp.Client] // nil until it has answered
}

func (v VM) links(heard func()) (*links, error) {
	l := &links{vm: v, heard: heard, stop: func() {}}
	for range len(v.Ports) + 1 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			l.close()
			return nil, err
		}
		l.ours = append(l.ours, os.NewFile(uintptr(fds[0]), "qemu"))
		l.theirs = append(l.theirs, os.NewFile(uintptr(fds[1]), "qemu's"))
	}
	return l, nil
}

// firstExtra is the descriptor of the first of exec.Cmd's ExtraFiles.
const firstExtra = 3

func (l *links) args() []string {
	var args []string
	if len(l.vm.Ports) > 0 {
		// Far from the root ports, which take the slots from 1 on.
		args = append(args, "-device", "virtio-serial-pci,addr=0x18")
	}
	for i, p := range l.vm.Ports {
		args = append(args,
			"-chardev", fmt.Sprintf("socket,id=port.%d,fd=%d", i, firstExtra+i),
			"-device", fmt.Sprintf("virtserialport,chardev=port.%d,name=%s", i, p.Name))
	}
	return append(args,
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", firstExtra+len(l.vm.Ports)),
		"-mon", "chardev=monitor,mode=control")
}

// started is called when QEMU has its ends.
func (l *links) started(ctx context.Context, fail context.CancelCauseFunc) {
	for _, f := range l.theirs {
		f.Close()
	}

	l.theirs = nil
	ctx, l.stop = context.WithCancel(ctx)
	for i, p := range l.vm.Ports {
		l.copied.Go(func() {
			if _, err := io.Copy(hearing{p.To, l.heard}, l.ours[i]); err != nil && !os.IsTimeout(err) {
				fail(fmt.Errorf("port %s of the guest: %w", p.Name, err))
			}
		})
	}

	l.copied.Go(func() {
		if err := l.runMonitor(ctx); err != nil && ctx.Err() == nil {
			fail(err)
		}
	})
}

// runMonitor holds the monitor until ctx ends. A machine without a monitor does not need its
// answers.
func (l *links) runMonitor(ctx context.Context) error {
	monitor, err := qmp.New(ctx, l.ours[len(l.vm.Ports)])
	if err != nil {
		if l.vm.Monitor == nil {
			return nil
		}
		return err
	}

	defer monitor.Close()
	l.monitor.Store(monitor)
	if l.vm.Monitor != nil {
		err = l.vm.Monitor(ctx, monitor)
	}
	if err == nil {
		<-ctx.Done()
	}

	return err
}

// hearing is a writer that reports each write.
type hearing struct {
	to    io.Writer
	heard func()
}

func (h hearing) Write(p []byte) (int, error) {
	h.heard()
	return h.to.Write(p)
}

// drain reads the bytes that QEMU left when it exited.
func (l *links) drain() {
	l.stop()
	for _, f := range l.ours {
		_ = f.SetReadDeadline(time.Now().Add(drainTime))
	}
	l.copied.Wait()
}

func (l *links) close() {
	l.stop()
	for _, f := range append(l.ours, l.theirs...) {
		f.Close()
	}
}
