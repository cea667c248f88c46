package oracle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"capgpu/bench/vulkan"
	"capgpu/engine/vk"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// Lavapipe is Mesa's Vulkan driver for CPUs.
type Lavapipe struct{ *vulkan.Process }

// Drivers finds the lavapipes of this machine: the system's (in Debian 12 an old
// one with known faults, but quick to compile), and one that tools/oracle.sh has
// unpacked. The error names the missing one, and does not mean that there is none.
func Drivers() ([]vk.Driver, error) {
	var found []vk.Driver
	var missing []error
	root := os.Getenv("CAPGPU_LAVAPIPE")
	if root == "" {
		root = filepath.Join("..", "..", ".cache", "lavapipe")
	}

	if d, err := vk.System(); err == nil {
		found = append(found, d)
	} else {
		missing = append(missing, err)
	}

	if d, err := vk.Unpacked(root); err == nil {
		found = append(found, d)
	} else {
		missing = append(missing, fmt.Errorf("%w (tools/oracle.sh unpacks one)", err))
	}

	return found, errors.Join(missing...)
}

// OpenLavapipe starts a driver.
func OpenLavapipe(d vk.Driver) (*Lavapipe, error) {
	p, err := vulkan.Open(d)
	if err != nil {
		return nil, err
	}
	return &Lavapipe{p}, nil
}

// Name is that of the driver, with its version.
func (e *Lavapipe) Name() string { return "lavapipe, " + e.Device().Driver }

// Run implements Engine. Vulkan has no empty buffers, so launches with one are
// ErrNotMine.
func (e *Lavapipe) Run(l *Launch) ([][]byte, error) {
	for _, b := range l.Bindings {
		if b != nil && len(b) == 0 {
			return nil, ErrNotMine
		}
	}

	constants, err := l.constants()
	if err != nil {
		return nil, err
	}

	job := vulkan.Job{
		SPIRV: l.SPIRV, Grid: [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}, Constants: constants, Inline: l.Inline, Bindings: l.Bindings,
	}
	return e.Process.Run(&job)
}

// blockConstants are the specialisation constants that the workgroup's size is made of,
// with the launch's values.
func blockConstants(l *Launch) ([]vulkan.Constant, error) {
	p, err := verify.Admit(l.SPIRV, verify.DefaultLimits())
	if err != nil {
		return nil, err
	}

	var list []vulkan.Constant
	for id, dimension := range p.Sizes {
		d, ok := p.Module.Decoration(id, spirv.DecorationSpecId)
		if !ok || slices.ContainsFunc(list, func(o vulkan.Constant) bool { return o.ID == d.Args[2] }) {
			continue
		}
		n := [3]uint32{l.Block.X, l.Block.Y, l.Block.Z}[dimension]
		list = append(list, vulkan.Constant{ID: d.Args[2], Value: uint64(n), Bytes: 4})
	}

	return list, nil
}
