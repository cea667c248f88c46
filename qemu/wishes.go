package qemu

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"capgpu/qemu/qmp"
)

// hostWord starts a line by which a guest asks us for something: "capgpu-host:
// device_del edu1" unplugs a function.
const hostWord = "capgpu-host: "

// wishes are the guest's requests to its host, found in its output.
type wishes struct {
	line []byte
	todo chan string
}

// maxWishes is how many may wait; a guest that wants more is not heard.
const maxWishes = 16

func newWishes() *wishes { return &wishes{todo: make(chan string, maxWishes)} }

// forget is for a guest that is booted again: the last boot's requests are dropped.
func (w *wishes) forget() {
	w.line = w.line[:0]
	for {
		select {
		case <-w.todo:
		default:
			return
		}
	}
}

// Write takes the guest's output.
func (w *wishes) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' {
			if len(w.line) < maxLineBytes {
				w.line = append(w.line, b)
			}
			continue
		}
		w.take(string(w.line))
		w.line = w.line[:0]
	}
	return len(p), nil
}

func (w *wishes) take(line string) {
	wish, ok := strings.CutPrefix(strings.TrimSpace(line), hostWord)
	if !ok {
		return
	}
	select {
	case w.todo <- wish:
	default:
	}
}

// run is a VM's Monitor.
func (w *wishes) run(ctx context.Context, monitor *qmp.Client) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case wish := <-w.todo:
			id, ok := strings.CutPrefix(wish, "device_del ")
			if !ok {
				return fmt.Errorf("the guest asks for %q, which nobody here knows", wish)
			}
			if err := monitor.RemoveDevice(ctx, id); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
		}
	}
}
