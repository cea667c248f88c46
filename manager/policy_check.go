package manager

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"capgpu/program/names"
)

// A policy can be well formed and yet unusable, or more than this host can provide. Such a
// policy is refused at the start, by a reload and by --check-policy.

// checkSocket makes the one user of a tenant the owner of its sockets if other users could
// not open them. It refuses sockets that none of the allowed users can open.
func (t *Tenant) checkSocket(n *node) error {
	if t.AnyUID {
		return nil
	}
	only := t.AllowedUIDs[0]
	single := !slices.ContainsFunc(t.AllowedUIDs, func(uid uint32) bool { return uid != only })
	if t.SocketUID < 0 && single && t.SocketMode&writableByOthers == 0 {
		t.SocketUID = int(only)
	}
	if !slices.ContainsFunc(t.AllowedUIDs, t.canOpen) {
		owner, _ := t.socketOwner()
		return at(n.off, `tenant %q admits users %v, and none of them can open its sockets, which user %d owns with mode %04o: set "socket": {"mode": "0660", "group": …}, or its owner`, t.Name, t.AllowedUIDs, owner, t.SocketMode)
	}
	return nil
}

// writableByOthers lets users other than the owner connect, which takes write permission.
const writableByOthers = 0o022

// canOpen reports whether a user may be able to open the sockets. The members of the group
// are not known.
func (t *Tenant) canOpen(uid uint32) bool {
	owner, _ := t.socketOwner()
	return uid == 0 || t.SocketMode&writableByOthers != 0 || int(uid) == owner && t.SocketMode&0o200 != 0
}

func (t *Tenant) parsePrograms(n *node, what string) error {
	if n.kind != arrayNode {
		return at(n.off, `%s must be a list of names, ["vecadd_f32"]`, what)
	}
	if len(n.array) == 0 { // an empty list means all to a driver, and looks like none
		return at(n.off, `%s is an empty list; leave the field out to allow all, or use "facet": "memory" to allow none`, what)
	}

	total := 0
	for i, e := range n.array {
		var name string
		if err := text(e, fmt.Sprintf("%s[%d]", what, i), &name); err != nil {
			return err
		}
		if name == "" || len(name) > 256 {
			return at(e.off, "%s[%d] has %d bytes; a program's name has 1 to 256", what, i, len(name))
		}
		if total += len(name) + 2; total > maxProgramsBytes {
			return at(e.off, "%s: the names are longer than %d bytes together; list fewer", what, maxProgramsBytes)
		}
		t.Programs = append(t.Programs, name)
	}

	return nil
}

// checkPrograms refuses built-in programs that the shipped drivers lack. A function with a
// driver of its own may have any.
func (p *Policy) checkPrograms(tenants *node) error {
	for i := range p.Tenants {
		t := &p.Tenants[i]
		strange := slices.ContainsFunc(p.Functions, func(f FunctionPolicy) bool { return f.Driver != "" && t.mayUse(f.Name) })
		if strange {
			continue
		}
		for j, name := range t.Programs {
			if slices.Contains(names.Library, name) || p.Hardware() && name == names.EduFactorial {
				continue
			}
			return at(tenants.array[i].field("programs").array[j].off, `tenants[%d].programs[%d]: no driver has a built-in program %q; docs/kernels.md and "gpuctl programs" tell which there are`, i, j, name)
		}
	}
	return nil
}

// field returns the value of an object's field, or nil.
func (n *node) field(name string) *node {
	for _, m := range n.object {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// memoryOfHost is the host's memory.
type memoryOfHost struct {
	bytes uint64 // in all
	huge  uint64 // of bytes: reserved for huge pages only
}

// readMemory reads /proc/meminfo (proc_meminfo(5)).
func readMemory() (h memoryOfHost, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return h, fmt.Errorf("ask how much memory the host has: %w", err)
	}
	return parseMemory(text)
}

func parseMemory(text []byte) (h memoryOfHost, err error) {
	value := map[string]uint64{}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		if fields := bytes.Fields(rest); len(fields) > 0 {
			value[string(name)], _ = strconv.ParseUint(string(fields[0]), 10, 64) // 0 is refused below
		}
	}
	if h.bytes = value["MemTotal"] << 10; h.bytes == 0 {
		return h, fmt.Errorf("ask how much memory the host has: /proc/meminfo has no MemTotal")
	}
	h.huge = value["Hugetlb"] << 10 // of all sizes
	return h, nil
}

// defaultMemory is the default of device.memory: 1 GiB, or three quarters of the host's
// memory if that is less.
func defaultMemory() uint64 {
	const usual = 1 << 30
	h, err := readMemory()
	if err != nil {
		return usual // checkHost reports the error
	}
	return min(usual, h.bytes/4*3)
}

// checkHost refuses a policy with functions that may hold more memory than this host has.
func (p *Policy) checkHost() error {
	h, err := readMemory()
	if err != nil {
		return err
	}
	return fits(p.named(), h)
}

// fits checks whether all functions may hold their limits at once.
func fits(functions []FunctionPolicy, h memoryOfHost) error {
	var all, plain uint64 // plain is of functions without huge pages
	for _, f := range functions {
		most := min(f.MemoryBytes, 1<<56) // so that the sums do not overflow
		all += most
		if !f.HugePages {
			plain += most
		}
	}

	const advice = "lower device.memory or functions[].memory of the policy"
	switch {
	case all > h.bytes:
		return fmt.Errorf("the functions of the policy may hold %d MiB of memory together, and this host has %d MiB: %s", all>>20, h.bytes>>20, advice)
	case plain > h.bytes-min(h.huge, h.bytes):
		return fmt.Errorf("functions without hugePages may hold %d MiB of memory together, and this host has %d MiB besides its huge pages: %s, or vm.nr_hugepages", plain>>20, (h.bytes-min(h.huge, h.bytes))>>20, advice)
	}

	return nil
}
