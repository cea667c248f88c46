package mock

import (
	"container/list"
	"errors"
	"sync"

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
	// The form that a program was loaded with is kept with it if it takes at most so
	// much: it is then paid for, by whoever loaded the program.
	maxFirstBytes  = 48 << 10
	maxFirstFactor = 32 // of the module, in addition
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
	wg       *sync.WaitGroup // of the device
	recent   list.List       // of *variant
	bytes    uint64
	// compiling is the one compilation that may be under way, also of a job that did
	// not wait for it; nil: none.
	compiling *compilation
}

// compilation is a form that is being compiled.
type compilation struct {
	code   *code
	form   form
	done   chan struct{} // closed when the rest is there
	kernel *lane.Kernel
	err    error
}

var errStopped = errors.New("the job is to end")

// get returns the form of a program that a job needs, with so many workers. It
// allocates nothing when that has been run before.
func (k *kernels) get(s *slot, job *backend.Job, workers int) (*variant, error) {
	c := job.Program.(*code)
	f := form{block: program.Dim3(job.Block), shared: job.Shared, check: job.Check}
	v := c.variant(f)
	if v == nil {
		kernel, err := k.compiled(s, c, f)
		if err != nil {
			return nil, err
		}
		v = k.add(c, f, kernel)
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

// compiled compiles beside the engine, which leaves when the job is stopped: there
// are modules of some kilobytes that take most of a second.
func (k *kernels) compiled(s *slot, c *code, f form) (*lane.Kernel, error) {
	if c.first != nil && f == (form{block: c.program.Info.Block}) {
		kernel := c.first
		c.first = nil
		return kernel, nil
	}
	for {
		job := k.compiling
		if job == nil {
			job = &compilation{code: c, form: f, done: make(chan struct{})}
			k.compiling = job
			k.wg.Go(func() {
				defer close(job.done)
				job.kernel, job.err = lane.Compile(c.program, lane.Options{SubgroupSize: k.subgroup, Block: f.block, SharedBytes: f.shared, Check: f.check})
			})
		}
		if !s.await(job.done) {
			return nil, errStopped
		}
		k.compiling = nil
		if job.code == c && job.form == f {
			return job.kernel, job.err
		}
	}
}

// await is false when the job is stopped first.
func (s *slot) await(done <-chan struct{}) bool {
	for s.stop.Load() == stopNone {
		select {
		case <-done:
			return true
		case <-s.stopped:
		}
	}
	return false
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

// add keeps a compiled form.
func (k *kernels) add(c *code, f form, kernel *lane.Kernel) *variant {
	for len(c.variants) >= maxVariants {
		k.drop(c.variants[0])
	}
	v := &variant{code: c, form: f, kernel: kernel, bytes: uint64(kernel.CodeBytes())}
	v.used = k.recent.PushFront(v)
	k.bytes += v.bytes
	c.variants = append(c.variants, v)
	return v
}

// forgetWorkers has the next job of a variant begin with new ones.
func (k *kernels) forgetWorkers(v *variant) {
	freed := uint64(len(v.workers) * v.kernel.MemoryBytes())
	v.bytes -= freed
	k.bytes -= freed
	clear(v.workers)
	v.workers = v.workers[:0]
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
