package service

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux (sysconf(_SC_CLK_TCK)).
const ticksPerSecond = 100

// CPUTime is a process's time so far, in user and kernel mode. The scheduler counts
// it in nanoseconds for each thread (Documentation/scheduler/sched-stats.rst);
// without that, /proc/PID/stat (proc(5)) has it in steps of 10 ms. Only the second
// includes threads that have ended, but those of a Go program stay.
func CPUTime(pid int) (time.Duration, error) {
	if exact, err := scheduled(pid); err == nil {
		return exact, nil
	}
	return CoarseCPUTime(pid)
}

// CoarseCPUTime is CPUTime in steps of 10 ms, without a side effect: reading a
// process's threads one by one makes it slower to reap when it dies (package
// sandbox, newProc).
func CoarseCPUTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(err1, err2)
}

// scheduled adds up the run time of the threads.
func scheduled(pid int) (sum time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("the scheduler tells nothing of process %d", pid)
	}

	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		var ran int64
		if _, err := fmt.Sscan(string(text), &ran); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(ran)
	}

	return sum, nil
}

// Memory is one memfd that a process has open.
type Memory struct {
	Name      string // as it was made
	Inode     uint64
	Bytes     int64 // its size
	Allocated int64 // the part with pages
}

// Holdings are a process's holdings, as the kernel reports them.
type Holdings struct {
	Descriptors int
	Memories    map[uint64]Memory // by inode
	Mapped      map[uint64]bool   // inodes of mapped memfds
}

const memfdPrefix = "/memfd:"

// HoldingsOf asks the kernel.
func HoldingsOf(pid int) (h Holdings, err error) {
	h.Memories, h.Mapped = map[uint64]Memory{}, map[uint64]bool{}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return h, err
	}

	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		link, err := os.Readlink(path)
		if err != nil {
			continue // closed meanwhile
		}
		h.Descriptors++
		name, ok := strings.CutPrefix(link, memfdPrefix)
		if !ok {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			continue
		}
		h.Memories[st.Ino] = Memory{Name: strings.TrimSuffix(name, " (deleted)"), Inode: st.Ino, Bytes: st.Size, Allocated: st.Blocks * 512}
	}

	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return h, err
	}

	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) >= 6 && strings.HasPrefix(fields[5], memfdPrefix) {
			if inode, err := strconv.ParseUint(fields[4], 10, 64); err == nil {
				h.Mapped[inode] = true
			}
		}
	}

	return h, nil
}
