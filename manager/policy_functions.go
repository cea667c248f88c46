package manager

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"

	"capgpu/ddf"
)

// FunctionPolicy configures one function and its driver. Fields that a policy file leaves out
// have the values of device.
type FunctionPolicy struct {
	Name    string // for clients, audit and gpuctl
	Address string // "0000:01:00.0"; empty: the fake function, or a device in software
	// Node configures a function that the kernel keeps; nil: it is a PCI function that vfio
	// hands over, or the fake function.
	Node *NodePolicy
	// Optional lets the manager start without it.
	Optional bool

	Driver string // the program; empty: gpu-service, or gpu-mock for the fake function

	MemoryBytes uint64 // DMA memory that all drivers of the function may hold
	IOVAEntries uint64 // mappings of it
	// HugePages lets memory use the host's huge pages. A process that still maps a freed
	// buffer takes new huge pages by touching it, and no limit counts those (memory.max
	// neither). So it is for tenants that are trusted with all of the host's memory.
	HugePages bool
	// DMABits is how many address bits the device has; 0: known from vendor and device, or
	// all.
	DMABits int
	// Windows are the parts of its memory BARs that the driver gets; empty: all.
	Windows []ddf.WindowSpec
	// Vectors is the largest number of interrupt vectors that it gets.
	Vectors int
	// InterruptLimit is how many interrupts of one vector in a second are a storm.
	InterruptLimit uint64
	Respawn        RespawnPolicy
}

const (
	maxFunctions = 64
	maxWindows   = 6 // memory BARs of a PCI function
	maxDoorbells = 1024
	// DefaultInterruptLimit is above the rate of a busy device, and below the rate that keeps
	// a CPU from all other work.
	DefaultInterruptLimit = 200_000
	defaultVectors        = 1
)

// A function's name is one word of a log line.
var (
	functionName    = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:-]{0,31}$`)
	functionAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// functionOf returns the policy of a function that takes all its values from device.
func (d *DevicePolicy) functionOf(name, address string) FunctionPolicy {
	return FunctionPolicy{
		Name: name, Address: address,
		MemoryBytes: d.MemoryBytes, IOVAEntries: d.IOVAEntries, HugePages: d.HugePages, Vectors: defaultVectors,
		InterruptLimit: d.InterruptLimit, Respawn: d.Respawn,
	}
}

// named returns the functions that the policy names, or the fake one if it names none and
// does not claim all.
func (p *Policy) named() []FunctionPolicy {
	if p.fake() {
		return []FunctionPolicy{p.Device.functionOf(fakeName, "")}
	}
	return p.Functions
}

// Hardware reports whether the policy has a function that vfio hands over.
func (p *Policy) Hardware() bool { return len(pciFunctions(p.Functions)) > 0 || p.ClaimAll }

// fake reports whether the policy has the fake function.
func (p *Policy) fake() bool { return len(p.Functions) == 0 && !p.ClaimAll }

// mayUse reports whether the tenant sees a function.
func (t *Tenant) mayUse(name string) bool {
	return len(t.Devices) == 0 || slices.Contains(t.Devices, name)
}

func (p *Policy) parseFunctions(n *node) error {
	if n.kind != arrayNode {
		return at(n.off, "functions must be a list, [{…}], not %s", nodeKinds[n.kind])
	}
	if len(n.array) > maxFunctions {
		return at(n.off, "there are %d functions; at most %d are served", len(n.array), maxFunctions)
	}

	for i, e := range n.array {
		f := p.Device.functionOf("", "")
		if err := f.parse(e, fmt.Sprintf("functions[%d]", i)); err != nil {
			return err
		}
		for _, other := range p.Functions {
			if other.Name == f.Name || other.Address == f.Address && f.Address != "" {
				return at(e.off, "function %s (%s) is here twice; keep one", f.Name, f.Address)
			}
		}
		p.Functions = append(p.Functions, f)
	}

	return nil
}

func (f *FunctionPolicy) parse(n *node, what string) error {
	if err := f.parseKind(n, what); err != nil {
		return err
	}
	known := fields{
		"kind": func(*node) error { return nil }, // parseKind's
		"name": func(n *node) error {
			if err := text(n, what+".name", &f.Name); err != nil {
				return err
			}
			if !functionName.MatchString(f.Name) {
				return at(n.off, "%s.name %q must be 1 to 32 of a-z, 0-9, -, _, . and :, starting with a letter or digit", what, f.Name)
			}
			return nil
		},
		"address": func(n *node) error {
			if err := text(n, what+".address", &f.Address); err != nil {
				return err
			}
			if !functionAddress.MatchString(f.Address) {
				return at(n.off, `%s.address %q must be a PCI address with its domain, in lower case, such as "0000:01:00.0" (device-manager --list-functions)`, what, f.Address)
			}
			return nil
		},
		"optional": func(n *node) error { return boolean(n, what+".optional", &f.Optional) },
		"driver": func(n *node) error {
			if err := text(n, what+".driver", &f.Driver); err != nil {
				return err
			}
			if !filepath.IsAbs(f.Driver) {
				return at(n.off, "%s.driver must be an absolute path", what)
			}
			return nil
		},
		"memory":      n.into(&f.MemoryBytes, what+".memory", size),
		"iovaEntries": n.into(&f.IOVAEntries, what+".iovaEntries", count),
		"hugePages":   func(n *node) error { return boolean(n, what+".hugePages", &f.HugePages) },
		"dmaBits": func(n *node) error {
			v, err := bounded(n, what+".dmaBits", 21, 64)
			f.DMABits = int(v)
			return err
		},
		"windows": func(n *node) error { return f.parseWindows(n, what+".windows") },
		"vectors": func(n *node) error {
			v, err := bounded(n, what+".vectors", 0, 2048)
			f.Vectors = int(v)
			return err
		},
		"interruptLimit": n.into(&f.InterruptLimit, what+".interruptLimit", interrupts),
		"respawn":        func(n *node) error { return f.Respawn.parse(n, what+".respawn") },
	}
	if f.Node != nil {
		maps.Copy(known, f.Node.fields(what))
	}

	switch err := n.fields(what, known); {
	case err != nil:
		return err
	case f.Node != nil:
		return f.checkNode(n, what)
	case f.Address == "":
		return at(n.off, `%s has no address; add "address": "0000:01:00.0" (device-manager --list-functions tells which there are)`, what)
	case f.Name == "":
		f.Name = f.Address
	case f.Name != f.Address && functionAddress.MatchString(f.Name):
		return at(n.off, "%s.name %q is an address, and another one's; choose a name", what, f.Name)
	}

	return nil
}

func (f *FunctionPolicy) parseWindows(n *node, what string) error {
	if n.kind != arrayNode || len(n.array) == 0 || len(n.array) > maxWindows {
		return at(n.off, `%s must be a list of 1 to %d windows, [{"bar": 0, "bytes": "4KiB"}]; leave it out for all of each memory BAR`, what, maxWindows)
	}
	for i, e := range n.array {
		w := ddf.WindowSpec{}
		if err := parseWindow(e, fmt.Sprintf("%s[%d]", what, i), &w); err != nil {
			return err
		}
		if slices.ContainsFunc(f.Windows, func(o ddf.WindowSpec) bool { return o.Bar == w.Bar }) {
			return at(e.off, "%s: BAR %d is here twice; a driver has one window of a BAR", what, w.Bar)
		}
		f.Windows = append(f.Windows, w)
	}
	return nil
}

func parseWindow(n *node, what string, w *ddf.WindowSpec) error {
	err := n.fields(what, fields{
		"bar": func(n *node) error {
			v, err := bounded(n, what+".bar", 0, 5)
			w.Bar = uint32(v)
			return err
		},
		"offset":   n.into(&w.Offset, what+".offset", size),
		"bytes":    n.into(&w.Bytes, what+".bytes", size),
		"writable": func(n *node) error { return boolean(n, what+".writable", &w.Writable) },
		"doorbells": func(n *node) error {
			if n.kind != arrayNode || len(n.array) > maxDoorbells {
				return at(n.off, "%s.doorbells must be a list of at most %d offsets", what, maxDoorbells)
			}
			for i, e := range n.array {
				off, err := bounded(e, fmt.Sprintf("%s.doorbells[%d]", what, i), 0, math.MaxInt64)
				if err != nil {
					return err
				}
				w.Doorbells = append(w.Doorbells, off)
			}
			return nil
		},
	})
	switch {
	case err != nil:
		return err
	case w.Bytes == 0 || w.Bytes%ddf.PageBytes != 0 || w.Offset%ddf.PageBytes != 0:
		return at(n.off, "%s: offset and bytes must be multiples of %d, and bytes more than 0", what, ddf.PageBytes)
	}

	for _, off := range w.Doorbells {
		if off%4 != 0 || off >= w.Bytes {
			return at(n.off, "%s: doorbell %d is not a register of the window's %d bytes", what, off, w.Bytes)
		}
	}

	return nil
}

func (t *Tenant) parseDevices(n *node, what string) error {
	if n.kind != arrayNode || len(n.array) == 0 {
		return at(n.off, `%s must be a list of names of functions, ["gpu0"]; leave it out for all`, what)
	}
	for i, e := range n.array {
		var name string
		if err := text(e, fmt.Sprintf("%s[%d]", what, i), &name); err != nil {
			return err
		}
		t.Devices = append(t.Devices, name)
	}
	return nil
}

// checkDevices refuses names that no function can have.
func (p *Policy) checkDevices(off int) error {
	var known []string
	for _, f := range p.named() {
		known = append(known, f.Name)
	}
	for _, t := range p.Tenants {
		for _, name := range t.Devices {
			if !slices.Contains(known, name) && (!p.ClaimAll || !functionAddress.MatchString(name)) {
				return at(off, "tenant %q may use %q, and no function has that name; there are: %v", t.Name, name, known)
			}
		}
	}
	return nil
}

func (p *Policy) parseClaim(n *node) error {
	if n.kind != textNode || n.text != "named" && n.text != "all" {
		return at(n.off, `claim must be "named" (what functions lists) or "all" (every display and accelerator function besides)`)
	}
	p.ClaimAll = n.text == "all"
	return nil
}

func boolean(n *node, what string, v *bool) error {
	if n.kind != boolNode {
		return at(n.off, "%s must be true or false, not %s", what, nodeKinds[n.kind])
	}
	*v = n.boolean
	return nil
}

func interrupts(n *node, what string) (uint64, error) { return bounded(n, what, 1, math.MaxInt64) }
