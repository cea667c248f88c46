package qemu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"capgpu/qemu/qmp"
)

// A machine that has run out of time is inspected before it is killed, so that its last lines
// tell what it was waiting for: the states of QEMU's threads and of the processors, and the
// registers of edu functions. At last the guest is made to panic, and its kernel prints all
// tasks. (The parameters for that are in VM.args.)

// Bounds of the inspection: for one answer of the monitor, and for the guest's output as it
// panics.
const (
	answerTime = 2 * time.Second
	panicTime  = 15 * time.Second
)

// autopsy prints the state of QEMU. monitor may be nil. It returns when ctx ends, which it
// does with QEMU, or when all was inspected.
func autopsy(ctx context.Context, pid, cpus int, monitor *qmp.Client, say func(line string)) {
	for _, line := range threads(pid) {
		say("qemu: " + line)
	}

	if monitor == nil {
		say("qemu: the monitor has never answered")
		return
	}

	for _, question := range questions(cpus) {
		answer, err := ask(ctx, monitor, question.command)
		if err != nil {
			say(fmt.Sprintf("qemu: %s: %v; if that is the time, its main loop stands still", question.command, err))
			return
		}
		for _, line := range question.saying(answer) {
			say(line)
		}
		if question.command != pciQuestion {
			continue
		}
		for _, bar := range eduBars(answer) {
			say(fmt.Sprintf("qemu: edu at %#x: %s", bar, eduRegisters(ctx, monitor, bar)))
		}
	}

	bound, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := monitor.Execute(bound, "inject-nmi", nil, nil); err != nil {
		say(fmt.Sprintf("qemu: the guest cannot be told to panic: %v", err))
		return
	}

	select {
	case <-ctx.Done():
	case <-time.After(panicTime):
		say("qemu: the guest was told to panic, and does not get to its end")
	}
}

// A machine that is silent for lookTime is asked whether one of its processors will never
// hear its timer again (Transcript.deafTo), which would cost all of Silence or Timeout. The
// answers are of different moments, so it is one that is found so sureLooks times in a row.
const (
	lookTime  = 20 * time.Second
	sureLooks = 3
	lookPause = 200 * time.Millisecond
)

// deaf is that processor, if there is one. It changes nothing in the machine. monitor may
// be nil.
func deaf(ctx context.Context, cpus int, monitor *qmp.Client, pause time.Duration) (cpu string) {
	if monitor == nil {
		return ""
	}

	for range sureLooks {
		var all Transcript
		for _, question := range questions(cpus) {
			answer, err := ask(ctx, monitor, question.command)
			if err != nil {
				return ""
			}
			all = append(all, question.saying(answer)...)
		}
		found := all.deafTo()
		if found == "" || cpu != "" && found != cpu {
			return ""
		}
		cpu = found
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(pause):
		}
	}

	return cpu
}

// threads returns each thread of a process with its name, its state and its place in the
// kernel (proc(5)). All in a lock: they wait for each other. T: they were stopped.
func threads(pid int) []string {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	var all []string
	for _, task := range tasks {
		state := "?"
		if status, err := os.ReadFile(filepath.Join(task, "status")); err == nil {
			_, state, _ = strings.Cut(string(status), "State:")
			state, _, _ = strings.Cut(strings.TrimSpace(state), "\n")
		}
		name, _ := os.ReadFile(filepath.Join(task, "comm"))
		where, _ := os.ReadFile(filepath.Join(task, "wchan"))
		all = append(all, fmt.Sprintf("thread %s %s: %s in %s", filepath.Base(task), strings.TrimSpace(string(name)), state, where))
	}
	return all
}

// question is a command of QEMU's monitor for people, and which lines of the answer say
// something.
type question struct {
	command string
	lines   *regexp.Regexp
}

// saying formats an answer for the transcript.
func (q question) saying(answer string) (lines []string) {
	for line := range strings.Lines(answer) {
		if line = strings.TrimSpace(line); q.lines.MatchString(line) {
			lines = append(lines, "qemu: "+line)
		}
	}
	return lines
}

const pciQuestion = "info pci"

func questions(cpus int) []question {
	all := []question{
		{"info status", regexp.MustCompile(`.`)},
		{"info registers -a", regexp.MustCompile(`^CPU#|RIP=`)},
		{pciQuestion, regexp.MustCompile(`^$`)},
	}
	for cpu := range cpus {
		all = append(all, question{fmt.Sprint("info lapic ", cpu), regexp.MustCompile(`^(dumping|LVTT|Timer|ISR|IRR)`)})
	}
	return all
}

// ask has the monitor for people answer.
func ask(ctx context.Context, monitor *qmp.Client, command string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	err = monitor.Execute(ctx, "human-monitor-command", map[string]string{"command-line": command}, &answer)
	return answer, err
}

var eduBar = regexp.MustCompile(`(?s)PCI device 1234:11e8.*?BAR0: 32 bit memory at (0x[0-9a-f]+)`)

// eduBars are where the registers of edu functions lie, of what "info pci" says.
func eduBars(pci string) (bars []uint64) {
	for _, m := range eduBar.FindAllStringSubmatch(pci, -1) {
		var bar uint64
		if _, err := fmt.Sscanf(m[1], "0x%x", &bar); err == nil && uint32(bar) != ^uint32(0) {
			bars = append(bars, bar)
		}
	}
	return slices.Compact(bars)
}

// eduRegisters reads the registers that reading does not change (QEMU's docs/specs/edu): a
// DMA command with its lowest bit set is under way, and an interrupt status that is not zero
// was raised and not acknowledged.
func eduRegisters(ctx context.Context, monitor *qmp.Client, bar uint64) string {
	var all []string
	for _, r := range []struct {
		name string
		off  uint64
	}{{"id", 0}, {"status", 0x20}, {"interrupts", 0x24}, {"dma source", 0x80}, {"destination", 0x88}, {"count", 0x90}, {"command", 0x98}} {
		answer, err := ask(ctx, monitor, fmt.Sprintf("xp /1wx %#x", bar+r.off))
		if err != nil {
			return strings.Join(append(all, err.Error()), ", ")
		}
		_, value, _ := strings.Cut(answer, ": ")
		all = append(all, r.name+" "+strings.TrimSpace(value))
	}
	return strings.Join(all, ", ")
}
