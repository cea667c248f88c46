package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/qemu/guest/tap"
)

// faultLines returns the kernel's lines about refused DMA since the boot.
func faultLines() ([]string, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	f := os.NewFile(uintptr(fd), "kmsg")
	defer f.Close()
	var lines []string
	record := make([]byte, 8192)
	for {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lines, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // some were overwritten
			continue
		case err != nil:
			return nil, err
		}
		_, text, _ := strings.Cut(string(record[:n]), ";")
		line, _, _ := strings.Cut(text, "\n")
		if strings.Contains(line, "DMAR: [DMA") {
			lines = append(lines, line)
		}
	}
}

func (s *suite) faults(c *tap.Check) int {
	return len(tap.Get[[]string](c, "read the kernel's log")(faultLines()))
}

func (s *suite) lastFault(c *tap.Check) string {
	lines := tap.Get[[]string](c, "read the kernel's log")(faultLines())
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}
