package oracle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"capgpu/bench/vulkan"
	"capgpu/program"
)

// Lavapipe is Mesa's Vulkan driver for CPUs.
type Lavapipe struct{ *vulkan.Process }

// Drivers finds the lavapipes of this machine: the system's (in Debian 12 an old
// one with known faults, but quick to compile), and one that tools/oracle.sh has
// unpacked. The error names the missing one, and does not mean that there is none.
func Drivers() ([]vulkan.Driver, error) {
	var found []vulkan.Driver
	var missing []error
	root := os.Getenv("CAPGPU_LAVAPIPE")
	if root == "" {
		root = filepath.Join("..", "..", ".cache", "lavapipe")
	}

	if d, err := vulkan.System(); err == nil {
		found = append(found, d)
	} else {
		missing = append(missing, err)
	}

	if d, err := vulkan.Unpacked(root); err == nil {
		found = append(found, d)
	} else {
		missing = append(missing, fmt.Errorf("%w (tools/oracle.sh unpacks one)", err))
	}

	return found, errors.Join(missing...)
}

// OpenLavapipe starts a driver.
func OpenLavapipe(d vulkan.Driver) (*Lavapipe, error) {
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

	job := vulkan.Job{
		SPIRV: l.SPIRV, Grid: [3]uint32{l.Grid.X, l.Grid.Y, l.Grid.Z}, Inline: l.Inline, Bindings: l.Bindings,
	}

	if l.BlockFree {
		for i, n := range []uint32{l.Block.X, l.Block.Y, l.Block.Z} {
			job.Constants = append(job.Constants, vulkan.Constant{ID: program.SpecBlockX + uint32(i), Value: uint64(n), Bytes: 4})
		}
	}

	if l.Manifest != nil {
		for _, c := range l.Manifest.Constants {
			job.Constants = append(job.Constants, vulkan.Constant{ID: c.ID, Value: c.Value, Bytes: 4})
		}
	}

	return e.Process.Run(&job)
}
