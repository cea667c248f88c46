package mock

import (
	"container/list"

	"capgpu/gpu/backend"
	"capgpu/program"
	"capgpu/program/lane"
)

const (
	// maxVariants is how many forms of one program are kept.
	maxVariants = 8
	// maxKernelBytes bounds what all kept forms of all programs take, about: the
	// one that runs is kept in any case.
	maxKernelBytes = 256 << 20
	// kernelFactor times the module is about what its compiled form takes.
	kernelFactor = 64
)

// form is what a program is compiled for.
type form struct {
	block  program.Dim3
	shared uint32
	check  bool
}

// variant is a program compiled for one form, with the workers that have run it.
type variant struct {
	code    *code
	form    form
	kernel  *lane.Kernel
	workers []*lane.Worker // by member of the crew
	bytes   uint64
	used    *list.Element
}

// kernels are the compiled forms that are kept, the last used first. They are the
// engine's.
type kernels struct {
	subgroup int
	recent   list.List // of *variant
	bytes    uint64
}

// get returns the form of a program that a job needs, with so many workers. It
// allocates nothing when that has been run before.
func (k *kernels) get(job *backend.Job, workers int) (*variant, error) {
	c := job.Program.(*code)
	f := form{block: program.Dim3(job.Block), shared: job.Shared, check: job.Check}
	v := c.variant(f)
	if v == nil {
		var err error
		if v, err = k.compile(c, f); err != nil {
			return nil, err
		}
	}
	k.recent.MoveToFront(v.used)
	for len(v.workers) < workers {
		v.workers = append(v.workers, v.kernel.NewWorker())
		v.bytes += uint64(v.kernel.MemoryBytes())
		k.bytes += uint64(v.kernel.MemoryBytes())
	}
	for k.bytes > maxKernelBytes && k.recent.Len() > 1 {
		k.drop(k.recent.Back().Value.(*variant))
	}
	return v, nil
}

// variant finds a form, and puts it at the end of the program's: the first is then
// the one that was not used for longest.
func (c *code) variant(f form) *variant {
	for i, v := range c.variants {
		if v.form == f {
			copy(c.variants[i:], c.variants[i+1:])
			c.variants[len(c.variants)-1] = v
			return v
		}
	}
	return nil
}

func (k *kernels) compile(c *code, f form) (*variant, error) {
	kernel := c.first
	if kernel != nil && f == (form{block: c.program.Info.Block}) {
		c.first = nil
	} else {
		var err error
		o := lane.Options{SubgroupSize: k.subgroup, Block: f.block, SharedBytes: f.shared, Check: f.check}
		if kernel, err = lane.Compile(c.program, o); err != nil {
			return nil, err
		}
	}
	for len(c.variants) >= maxVariants {
		k.drop(c.variants[0])
	}
	v := &variant{code: c, form: f, kernel: kernel, bytes: kernelFactor * 4 * uint64(len(c.program.Module.Words))}
	v.used = k.recent.PushFront(v)
	k.bytes += v.bytes
	c.variants = append(c.variants, v)
	return v, nil
}

// drop forgets a variant.
func (k *kernels) drop(v *variant) {
	k.recent.Remove(v.used)
	k.bytes -= v.bytes
	all := v.code.variants
	for i, other := range all {
		if other == v {
			copy(all[i:], all[i+1:])
			all[len(all)-1] = nil
			v.code.variants = all[:len(all)-1]
			return
		}
	}
}
