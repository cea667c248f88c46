package qemu

import (
	"fmt"
	"slices"
	"strings"
)

// Flaws of the emulator (QEMU 7.2 with several threads) end a guest at moments that have
// nothing to do with the test. A machine that dies of one is booted again; so is one that has
// not booted in its time, for any reason.

// maxBoots is how often Run boots a machine that dies of a flaw.
const maxBoots = 3

// staleCode is the last message of a guest that dies of this flaw: while one processor
// patches the kernel's text (a static branch, say), another may still run the int3 that held
// its place, after the kernel has forgotten about it. Seen twice in some eighty boots. No
// code of this project writes to the kernel's text.
const staleCode = "Oops: int3: "

// flaw returns the emulator's flaw that ended a guest; empty: no known one.
func (t Transcript) flaw() string {
	if t.has(staleCode) {
		return fmt.Sprintf("ran code that the kernel had already replaced (%q)", staleCode)
	}
	if cpu := t.deafTo(); cpu != "" {
		return fmt.Sprintf("lost the end of a timer's interrupt: processor %s is halted and still in it, so no timer of it ever ends", cpu)
	}
	return ""
}

// deafTo is the processor, if there is one, that gets no interrupt of its timer any more: the
// autopsy found it halted, with the timer run out, its interrupt in service and the next one
// waiting for that. A kernel ends the interrupt before it halts. Seen once in some hundred
// boots; nothing of the guest can bring it about but its kernel.
func (t Transcript) deafTo() (cpu string) {
	halted := map[string]bool{}
	registers, vector := "", ""
	ranOut, serves := false, false
	for _, line := range t {
		line, ours := strings.CutPrefix(line, "qemu: ")
		words := strings.Fields(line)
		if !ours || len(words) == 0 {
			continue
		}
		switch {
		case strings.HasPrefix(line, "CPU#"):
			registers = strings.TrimPrefix(words[0], "CPU#")
		case slices.Contains(words, "HLT=1"):
			halted[registers] = true
		case words[0] == "dumping":
			cpu, vector, ranOut, serves = words[len(words)-1], "", false, false
		case words[0] == "LVTT":
			_, vector, _ = strings.Cut(line, "(vec ")
			vector = strings.TrimSuffix(vector, ")")
		case words[0] == "Timer":
			ranOut = strings.HasSuffix(line, " current_count = 0")
		case words[0] == "ISR":
			serves = slices.Contains(words[1:], vector)
		case words[0] == "IRR" && slices.Contains(words[1:], vector):
			if halted[cpu] && ranOut && serves {
				return cpu
			}
		}
	}

	return ""
}
