package manager

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kinds of functions in a policy.
const (
	kindPCI    = "pci"
	kindVulkan = "vulkan"
	kindLane   = "lane" // runs programs in software; for tests
)

// NodePolicy configures a function that a driver of the kernel keeps. Engine processes hold
// its device nodes, and its vendor's library.
type NodePolicy struct {
	Kind string // "vulkan" or "lane"
	// Nodes are the device nodes that engines get; none: a device in software.
	Nodes []string
	// Engine is the program; empty: gpu-engine-KIND beside device-manager.
	Engine string
	ICD    string // the manifest of the vendor's Vulkan driver; empty: the loader's choice
	// Libraries are folders that engines may read and execute; Files, files and folders that
	// they may read.
	Libraries, Files []string
	Proc             bool   // engines have a /proc of their own processes
	Most             int    // engines that are open at once
	EngineBytes      uint64 // memory that each may use besides the function's DMA memory
}

const (
	maxNodePaths       = 16
	maxPaths           = 64
	maxEngines         = 16
	defaultEngines     = 4
	defaultEngineBytes = 2 << 30
)

func newNodePolicy(kind string) *NodePolicy {
	return &NodePolicy{Kind: kind, Most: defaultEngines, EngineBytes: defaultEngineBytes}
}

// ServeNodes makes a function with nodes, or a device in software, the policy's only one.
func (p *Policy) ServeNodes(name, address string, n NodePolicy) {
	f := p.Device.functionOf(name, address)
	f.Node, f.Vectors = &n, 0
	p.Functions = []FunctionPolicy{f}
}

// usualLibraries are the folders in which distributions keep libraries and the dynamic loader.
func usualLibraries() (found []string) {
	for _, dir := range []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64"} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			found = append(found, dir)
		}
	}
	return found
}

// nodeFields are the fields of a function that has nodes.
func (n *NodePolicy) fields(what string) fields {
	return fields{
		"nodes":     func(v *node) (err error) { n.Nodes, err = paths(v, what+".nodes", maxNodePaths); return err },
		"libraries": func(v *node) (err error) { n.Libraries, err = paths(v, what+".libraries", maxPaths); return err },
		"files":     func(v *node) (err error) { n.Files, err = paths(v, what+".files", maxPaths); return err },
		"engine":    func(v *node) error { return path(v, what+".engine", &n.Engine) },
		"icd":       func(v *node) error { return path(v, what+".icd", &n.ICD) },
		"proc":      func(v *node) error { return boolean(v, what+".proc", &n.Proc) },
		"engines": func(v *node) error {
			return v.fields(what+".engines", fields{
				"most": func(v *node) error {
					most, err := bounded(v, what+".engines.most", 1, maxEngines)
					n.Most = int(most)
					return err
				},
				"memory": v.into(&n.EngineBytes, what+".engines.memory", size),
			})
		},
	}
}

// pciOnly are fields that say nothing about a function with nodes.
var pciOnly = []string{"windows", "vectors", "dmaBits", "interruptLimit"}

// parseKind reads the kind of a function, before its other fields.
func (f *FunctionPolicy) parseKind(n *node, what string) error {
	if n.kind != objectNode {
		return nil // told by fields
	}
	kind := kindPCI
	if v := n.field("kind"); v != nil {
		if err := text(v, what+".kind", &kind); err != nil {
			return err
		}
		if !slices.Contains([]string{kindPCI, kindVulkan, kindLane}, kind) {
			return at(v.off, `%s.kind must be "pci" (a function of its own driver, through vfio), "vulkan" or "lane" (a device that engine processes use), not %q`, what, kind)
		}
	}

	if kind != kindPCI {
		f.Node, f.Vectors = newNodePolicy(kind), 0
	}
	for _, m := range n.object {
		_, ofNodes := newNodePolicy("").fields("")[m.name]
		switch {
		case ofNodes && f.Node == nil:
			return at(m.off, `%s.%s is of functions with nodes; add "kind": "vulkan", or remove it`, what, m.name)
		case f.Node != nil && slices.Contains(pciOnly, m.name):
			return at(m.off, "%s.%s is of PCI functions that vfio hands over; remove it, since the kernel keeps a function of kind %q", what, m.name, f.Node.Kind)
		}
	}
	return nil
}

// checkNode checks what the fields of a function with nodes say together.
func (f *FunctionPolicy) checkNode(n *node, what string) error {
	p := f.Node
	switch {
	case f.Name == "" && f.Address == "":
		return at(n.off, `%s has no name; add "name": "gpu0"`, what)
	case len(p.Nodes) > 0 && f.Address == "":
		return at(n.off, `%s has nodes and no address; add "address": "0000:01:00.0", the PCI function whose nodes they are`, what)
	case len(p.Nodes) == 0 && f.Address != "":
		return at(n.off, `%s has an address and no nodes; add "nodes": ["/dev/dri/renderD128"], or remove the address for a device in software`, what)
	}
	for _, node := range p.Nodes {
		if !strings.HasPrefix(node, "/dev/") {
			return at(n.off, "%s: %s is not below /dev", what, node)
		}
	}
	if f.Name == "" {
		f.Name = f.Address
	}
	return nil
}

// paths reads a list of absolute paths.
func paths(n *node, what string, most int) (list []string, err error) {
	if n.kind != arrayNode || len(n.array) > most {
		return nil, at(n.off, "%s must be a list of at most %d absolute paths", what, most)
	}
	for i, e := range n.array {
		var p string
		if err := path(e, fmt.Sprintf("%s[%d]", what, i), &p); err != nil {
			return nil, err
		}
		if slices.Contains(list, p) {
			return nil, at(e.off, "%s has %s twice; keep one", what, p)
		}
		list = append(list, p)
	}
	return list, nil
}

// path reads an absolute path.
func path(n *node, what string, to *string) error {
	if err := text(n, what, to); err != nil {
		return err
	}
	if !filepath.IsAbs(*to) || filepath.Clean(*to) != *to || *to == "/" || len(*to) > 1024 {
		return at(n.off, "%s must be an absolute path below /, as short as it can be written", what)
	}
	return nil
}

// pciFunctions returns those that vfio hands over.
func pciFunctions(all []FunctionPolicy) (list []FunctionPolicy) {
	for _, f := range all {
		if f.Node == nil {
			list = append(list, f)
		}
	}
	return list
}
