package opencl

import (
	"errors"
	"fmt"
	"os"
	"time"

	"capgpu/bench/child"
)

const (
	mark         = "CAPGPU_OPENCL_CHILD"
	defaultLimit = 60 * time.Second // PoCL compiles when it launches
)

// Main does the jobs of a parent and does not return, if Open started this process;
// otherwise it does nothing.
func Main() {
	child.Main(mark, func() (reply, func(*Job) reply) {
		d, err := openDevice()
		if err != nil {
			return reply{Err: err.Error()}, nil
		}
		return reply{Device: d.name}, func(j *Job) (r reply) {
			var err error
			if r.Bindings, err = d.run(j); err != nil {
				r.Err = err.Error()
			}
			return r
		}
	})
}

// Process is PoCL in a child process, started when there is a job.
type Process struct {
	device string
	child  *child.Process[Job, reply] // nil while there is none
	temp   string                     // the child's files
}

// Open starts PoCL and asks for its name.
func Open() (*Process, error) {
	p := &Process{}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start PoCL: %w", err)
	}
	return p, nil
}

// Device is the driver's name for itself.
func (p *Process) Device() string { return p.device }

// Run does one job and returns its bindings as the kernel left them. The job's own
// bindings are not changed. Errors are ErrTimeout, ErrCrashed or OpenCL's own.
func (p *Process) Run(j *Job) ([][]byte, error) {
	if p.child == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}

	limit := j.Timeout
	if limit <= 0 {
		limit = defaultLimit
	}

	r, err := p.child.Ask(j, limit)
	if err != nil {
		p.Close()
		return nil, err
	}
	if r.Err != "" {
		p.Close() // the driver may be damaged
		return nil, errors.New(r.Err)
	}

	// gob turns an empty slice into nil.
	for i, b := range j.Bindings {
		if b != nil && r.Bindings[i] == nil {
			r.Bindings[i] = []byte{}
		} else if b == nil {
			r.Bindings[i] = nil
		}
	}

	return r.Bindings, nil
}

// Close ends the child and waits for it. A later Run would start another.
func (p *Process) Close() {
	if p.child == nil {
		return
	}
	p.child.Close()
	_ = os.RemoveAll(p.temp)
	p.child = nil
}

func (p *Process) start() error {
	temp, err := os.MkdirTemp("", "capgpu-pocl-")
	if err != nil {
		return err
	}

	c, first, err := child.Start[Job, reply](mark,
		"POCL_CACHE_DIR="+temp, "POCL_KERNEL_CACHE=0", "POCL_MAX_PTHREAD_COUNT=1", "POCL_DEVICES=pthread", "TMPDIR="+temp)
	if err != nil {
		_ = os.RemoveAll(temp)
		return err
	}

	p.child, p.temp = c, temp
	if first.Err != "" {
		p.Close()
		return errors.New(first.Err)
	}

	p.device = first.Device
	return nil
}
