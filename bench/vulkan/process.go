package vulkan

import (
	"errors"
	"fmt"
	"time"

	"capgpu/bench/child"
	"capgpu/engine/vk"
)

const (
	mark         = "CAPGPU_VULKAN_CHILD"
	replySlack   = 60 * time.Second
	defaultLimit = 60 * time.Second // a driver may compile only when it launches
)

// Main does the jobs of a parent and does not return, if Open started this process;
// otherwise it does nothing.
func Main() {
	child.Main(mark, func() (reply, func(*Job) reply) {
		d, err := openDevice()
		if err != nil {
			return reply{Err: err.Error()}, nil
		}
		return reply{Device: d.info}, func(j *Job) (r reply) {
			var err error
			r.Bindings, err = d.run(j)
			if errors.Is(err, ErrTimeout) {
				r.Timeout = true
			} else if err != nil {
				r.Err = err.Error()
			}
			return r
		}
	})
}

// Process is a driver in a child process, started when there is a job.
type Process struct {
	driver vk.Driver
	device Device
	child  *child.Process[Job, reply] // nil while there is none
}

// Open starts a driver and asks for its description.
func Open(driver vk.Driver) (*Process, error) {
	p := &Process{driver: driver}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", driver.Name, err)
	}
	return p, nil
}

// Device is the driver's description of itself.
func (p *Process) Device() Device { return p.device }

// Driver is the opened driver.
func (p *Process) Driver() vk.Driver { return p.driver }

// Run does one job and returns its bindings as the kernel left them. The job's own
// bindings are not changed. Errors are ErrTimeout, ErrCrashed or Vulkan's own.
func (p *Process) Run(j *Job) ([][]byte, error) {
	job := *j
	if job.Timeout <= 0 {
		job.Timeout = defaultLimit
	}

	if p.child == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}

	r, err := p.child.Ask(&job, job.Timeout+replySlack)
	switch {
	case err != nil:
		p.Close()
		return nil, err
	case r.Timeout: // the kernel is still running
		p.Close()
		return nil, ErrTimeout
	case r.Err != "": // the driver may be damaged
		p.Close()
		return nil, errors.New(r.Err)
	}

	return r.Bindings, nil
}

// Close ends the child and waits for it. A later Run would start another.
func (p *Process) Close() {
	if p.child != nil {
		p.child.Close()
		p.child = nil
	}
}

func (p *Process) start() error {
	env := []string{
		"VK_DRIVER_FILES=" + p.driver.ICD,
		"VK_ICD_FILENAMES=" + p.driver.ICD, // for loaders before 1.3.207
		"VK_LOADER_LAYERS_DISABLE=*",
		"MESA_SHADER_CACHE_DISABLE=true",
		"LP_NUM_THREADS=1",
	}
	if p.driver.Libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+p.driver.Libraries)
	}

	c, first, err := child.Start[Job, reply](mark, env...)
	if err != nil {
		return err
	}

	p.child = c
	if first.Err != "" {
		p.Close()
		return errors.New(first.Err)
	}

	p.device = first.Device
	return nil
}
