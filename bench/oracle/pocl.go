package oracle

import (
	"capgpu/bench/opencl"
)

// PoCL is an OpenCL driver for CPUs. It runs random kernels printed in another
// language from the same tree, and uses no SPIR-V.
type PoCL struct{ process *opencl.Process }

// OpenPoCL starts the driver, if this machine has it.
func OpenPoCL() (*PoCL, error) {
	p, err := opencl.Open()
	if err != nil {
		return nil, err
	}
	return &PoCL{p}, nil
}

// Name is the driver's, with its version.
func (e *PoCL) Name() string { return e.process.Device() }

// Close ends the driver's process.
func (e *PoCL) Close() { e.process.Close() }

// Run implements Engine. A launch without a random kernel that OpenCL C can express
// is ErrNotMine.
func (e *PoCL) Run(l *Launch) ([][]byte, error) {
	if l.Kernel == nil {
		return nil, ErrNotMine
	}
	c, ok := l.Kernel.OpenCL()
	if !ok {
		return nil, ErrNotMine
	}
	after, err := e.process.Run(&opencl.Job{
		Source: c.Source, Grid: l.Kernel.Grid, Block: l.Kernel.Block, Inline: l.Inline, Bindings: c.Bindings,
	})
	if err != nil {
		return nil, err
	}
	return c.Back(after), nil
}
