package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Mechanism is one way in which a process is confined.
type Mechanism string

// The mechanisms, in the order in which they take effect.
const (
	// User: a user of its own, which owns nothing and has no other process. In developer mode
	// without root it is the user that runs the manager.
	User Mechanism = "user"
	// Namespaces: user, mount, pid, network, IPC, UTS and cgroup namespaces.
	Namespaces Mechanism = "namespaces"
	// Memory: a limit of memory; above it the whole process is killed.
	Memory Mechanism = "memory"
	// Pids: a limit of threads.
	Pids Mechanism = "pids"
	// Devices: no device node can be opened or made (cgroup-device eBPF).
	Devices Mechanism = "devices"
	// Filesystem: the root directory is empty and read-only.
	Filesystem Mechanism = "filesystem"
	// Capabilities: none, now or later (with no-new-privileges).
	Capabilities Mechanism = "capabilities"
	// Landlock: no file, no TCP, no abstract socket, no signal to others.
	Landlock Mechanism = "landlock"
	// Seccomp: only the system calls of the profile; any other one kills.
	Seccomp Mechanism = "seccomp"
)

// Mechanisms are all of them.
var Mechanisms = []Mechanism{User, Namespaces, Memory, Pids, Devices, Filesystem, Capabilities, Landlock, Seccomp}

// ParseMechanism reads the name of one.
func ParseMechanism(name string) (Mechanism, error) {
	if m := Mechanism(name); slices.Contains(Mechanisms, m) {
		return m, nil
	}
	return "", fmt.Errorf("there is no mechanism %q; the names are %s", name, join(Mechanisms))
}

func join(list []Mechanism) string {
	var names []string
	for _, m := range list {
		names = append(names, string(m))
	}
	return strings.Join(names, ",")
}

// split reads what join wrote.
func split(names string) (list []Mechanism, err error) {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		m, err := ParseMechanism(name)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Missing is a mechanism that is not in force, and why.
type Missing struct {
	Mechanism Mechanism
	Reason    error
}

func (m Missing) Error() string { return fmt.Sprintf("%s: %v", m.Mechanism, m.Reason) }

// refusal returns an error for required mechanisms that are missing, or nil.
func refusal(require []Mechanism, missing []Missing) error {
	var parts []string
	for _, m := range missing {
		if slices.Contains(require, m.Mechanism) {
			parts = append(parts, m.Error())
		}
	}
	if parts == nil {
		return nil
	}
	return fmt.Errorf("the policy requires a confinement that cannot be had here: %s; provide it, or take it out of sandbox.require", strings.Join(parts, "; "))
}
