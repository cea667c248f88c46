package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"capgpu/qemu/guest/boot"
)

// process is a user process that is neither the guest's init nor this program.
type process struct {
	pid, parent int
	uid         int // effective
	name        string
	status      map[string]string // of /proc/PID/status
}

func (p process) String() string { return fmt.Sprintf("%s (%d, uid %d)", p.name, p.pid, p.uid) }

// processes lists them. Kernel threads have no command line.
func processes() ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}

	var all []process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if pid == 1 || pid == os.Getpid() || len(cmdline) == 0 || err != nil {
			continue // one that has just ended cannot be read, either
		}
		p, err := readProcess(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}

	return all, nil
}

func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return process{}, err
	}

	p := process{pid: pid, status: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		p.status[name] = strings.TrimSpace(value)
	}

	p.name = p.status["Name"]
	p.parent, _ = strconv.Atoi(p.status["PPid"])
	uids := strings.Fields(p.status["Uid"])
	if len(uids) != 4 {
		return p, fmt.Errorf("process %d has no Uid line", pid)
	}

	p.uid, err = strconv.Atoi(uids[1])
	return p, err
}

// descriptors returns the open descriptors of a process, by number.
func descriptors(pid int) (map[int]string, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}

	open := map[int]string{}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		open[fd] = target
	}

	return open, nil
}

// mappings are the files that a process has mapped, and how many times each.
func mappings(pid int) (map[string]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	mapped := map[string]int{}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), " ", 6)
		if len(fields) == 6 {
			if name := strings.TrimSpace(fields[5]); name != "" {
				mapped[name]++
			}
		}
	}
	return mapped, nil
}

// cgroups are the groups below the root of the hierarchy that the guest did not begin
// with.
func cgroups() ([]string, error) {
	const root = "/sys/fs/cgroup"
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && path != filepath.Join(root, boot.FirstGroup) {
			all = append(all, strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	return all, err
}
