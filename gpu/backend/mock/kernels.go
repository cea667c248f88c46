package mock

import (
	"container/list"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

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
	// much: it is then paid for, by the session that loaded the program.
	maxFirstBytes  = 48 << 10
	maxFirstFactor = 32 // of the module, in addition
	// moduleFactor is how much larger a module in memory is than its bytes, about.
	moduleFactor = 8
)

// form is what a program is compiled for.
type form struct {
	block  program.Dim3
	shared uint32
	check  bool
}

// variant is a program compiled for one form, with the workers that have run it. One
// that was dropped has no kernel.
type variant struct {
	code    *code
	form    form
	kernel  *lane.Kernel
	workers []*lane.Worker // by member of the crew
	busy    bool           // the running job has these,
	beside  *lane.Worker   // and what preempts it has this one
	bytes   uint64
	used    *list.Element
}

// kernels are the compiled forms that are kept, the last used first. They are the
// engine's while it has a job, or of what preempts that, and else the goroutine's that
// holds Device.mu.
type kernels struct {
	subgroup int
	wg       *sync.WaitGroup // of the device
	recent   list.List       // of *variant
	bytes    uint64
	// left is closed when the compilation that its job did not wait for has ended,
	// which it does soon; nil: there is none. So one is under way at a time.
	left <-chan struct{}
}

var errStopped = errors.New("the job is to end")

// get returns the form of a program that a job needs, with so many workers. It
// allocates nothing when that has been run before.
func (k *kernels) get(s *slot, job *backend.Job, workers int) (*variant, error) {
	c := job.Program.(*code)
	f := form{block: job.Block, shared: job.Shared, check: job.Check}
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
// are modules of some kilobytes that take most of a second. A compilation that its job has
// left is told to stop, so that nobody else waits for it.
func (k *kernels) compiled(s *slot, c *code, f form) (*lane.Kernel, error) {
	if c.first != nil && f == (form{block: c.program.Info.Block}) {
		kernel := c.first
		c.first = nil
		return kernel, nil
	}
	if k.left != nil && !s.await(k.left) {
		return nil, errStopped
	}
	k.left = nil
	var kernel *lane.Kernel
	var err error
	var stop atomic.Uint32
	done := make(chan struct{})
	k.wg.Go(func() {
		defer close(done)
		kernel, err = lane.Compile(c.program, lane.Options{SubgroupSize: k.subgroup, Block: f.block, SharedBytes: f.shared, Check: f.check, Stop: &stop})
	})
	if !s.await(done) {
		stop.Store(1)
		k.left = done
		return nil, errStopped
	}
	return kernel, err
}

// besideOf is a worker of a variant of which the running job has the others.
func (k *kernels) besideOf(v *variant) *lane.Worker {
	if v.beside == nil {
		v.beside = v.kernel.NewWorker()
		v.bytes += uint64(v.kernel.MemoryBytes())
		k.bytes += uint64(v.kernel.MemoryBytes())
	}
	return v.beside
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

// touch notes that a variant is used.
func (k *kernels) touch(v *variant) {
	k.recent.MoveToFront(v.used)
	if c := v.code; c.variants[len(c.variants)-1] != v {
		c.variant(v.form)
	}
}

// add keeps a compiled form.
func (k *kernels) add(c *code, f form, kernel *lane.Kernel) *variant {
	for len(c.variants) >= maxVariants {
		k.drop(c.variants[0])
	}
	v := &variant{code: c, form: f, kernel: kernel, bytes: uint64(kernel.CodeBytes())}
	v.used = k.recent.PushFront(v)
	k.bytes += v.bytes
	if len(c.variants) == 0 {
		k.bytes += c.moduleBytes()
		c.kept.Store(true)
	}
	c.variants = append(c.variants, v)
	return v
}

// moduleBytes is what every form of a program holds on to, about.
func (c *code) moduleBytes() uint64 { return moduleFactor * 4 * uint64(len(c.program.Module.Words)) }

// drop forgets a variant.
func (k *kernels) drop(v *variant) {
	if v.kernel == nil { // what preempted a job of it had dropped it
		return
	}
	k.recent.Remove(v.used)
	k.bytes -= v.bytes
	c := v.code
	i := slices.Index(c.variants, v)
	c.variants = slices.Delete(c.variants, i, i+1)
	v.kernel, v.workers, v.beside = nil, nil, nil // a ready job may have it
	if len(c.variants) == 0 {
		k.bytes -= c.moduleBytes()
		c.kept.Store(false)
	}
}

// forget drops all that there is of a program.
func (k *kernels) forget(c *code) {
	for len(c.variants) > 0 {
		k.drop(c.variants[0])
	}
}
