package oracle

import (
	"capgpu/bench/opencl"
)

// PoCL is an OpenCL driver for CPUs. It runs random kernels in another printing of
// the same tree, and knows nothing of SPIR-V.
type PoCL struct{ process *opencl.Process }

// OpenPoCL starts the driver, if this machine has it.
func OpenPoCL() (*PoCL, error) {
	p, err := opencl.Open()
	if err != nil {
		return nil, err
	}
	return &PoCL{p}, nil
}

// Name is that of the driver, with its version.
func (e *PoCL) Name() string { return e.process.Device() }

// Close ends the driver's process.
func (e *PoCL) Close() { e.process.Close() }

// Run is Engine's. Launches of what is not a random kernel that OpenCL C has are
// ErrNotMine.
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
