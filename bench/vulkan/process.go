package vulkan

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	childEnv     = "CAPGPU_VULKAN_CHILD"
	openTimeout  = 30 * time.Second // the first one reads some 150 MB of libraries
	replySlack   = 60 * time.Second
	defaultLimit = 60 * time.Second // a driver may compile only when it launches
)

// Process is a driver in a child process, started when there is a job.
type Process struct {
	driver Driver
	device Device
	cmd    *exec.Cmd
	jobs   *gob.Encoder
	in     io.Closer
	got    chan result // the reader's results
	stderr *tail
}

type result struct {
	reply reply
	err   error
}

// Open starts a driver and asks for its description.
func Open(driver Driver) (*Process, error) {
	p := &Process{driver: driver}
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", driver.Name, err)
	}
	return p, nil
}

// Device is the driver's description of itself.
func (p *Process) Device() Device { return p.device }

// Driver is the opened driver.
func (p *Process) Driver() Driver { return p.driver }

// Run does one job and returns its bindings as the kernel left them. The job's own
// bindings are not changed. Errors are ErrTimeout, ErrCrashed or Vulkan's own.
func (p *Process) Run(j *Job) ([][]byte, error) {
	job := *j
	if job.Timeout <= 0 {
		job.Timeout = defaultLimit
	}

	if p.cmd == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}

	if err := p.jobs.Encode(&job); err != nil {
		return nil, p.crashed(err)
	}

	r, err := p.reply(job.Timeout + replySlack)
	switch {
	case err != nil:
		return nil, err
	case r.Timeout:
		p.kill()
		return nil, ErrTimeout
	case r.Err != "":
		// The driver may be damaged.
		p.kill()
		return nil, errors.New(r.Err)
	}

	return r.Bindings, nil
}

// Close ends the child. A later Run would start another.
func (p *Process) Close() { p.kill() }

func (p *Process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(),
		childEnv+"=1",
		"VK_DRIVER_FILES="+p.driver.ICD,
		"VK_ICD_FILENAMES="+p.driver.ICD, // for loaders before 1.3.207
		"VK_LOADER_LAYERS_DISABLE=*",
		"MESA_SHADER_CACHE_DISABLE=true",
		"LP_NUM_THREADS=1",
	)

	if p.driver.Libraries != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+p.driver.Libraries)
	}

	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}

	read, write, err := os.Pipe()
	if err != nil {
		return err
	}

	p.stderr = &tail{}
	cmd.ExtraFiles = []*os.File{write} // 3: replies; a driver may print to stdout
	cmd.Stderr = p.stderr
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return err
	}

	p.cmd, p.in, p.jobs = cmd, stdin, gob.NewEncoder(stdin)
	p.got = make(chan result, 1)
	go runReader(read, p.got)
	r, err := p.reply(openTimeout)
	if err != nil {
		return err
	}
	if r.Err != "" {
		p.kill()
		return errors.New(r.Err)
	}

	p.device = r.Device
	return nil
}

// runReader passes on replies until the child closes its end. The channel has
// room for one, and a child answers one job at a time, so nothing blocks.
func runReader(read *os.File, got chan<- result) {
	defer close(got)
	defer func() { _ = read.Close() }()
	dec := gob.NewDecoder(bufio.NewReader(read))
	for {
		var r result
		r.err = dec.Decode(&r.reply)
		got <- r
		if r.err != nil {
			return
		}
	}
}

func (p *Process) reply(limit time.Duration) (*reply, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r, ok := <-p.got:
		if !ok || r.err != nil {
			return nil, p.crashed(r.err)
		}
		return &r.reply, nil
	case <-timer.C:
		p.kill()
		return nil, ErrTimeout
	}
}

func (p *Process) crashed(cause error) error {
	state := p.kill()
	return fmt.Errorf("%w (%s; %w): %s", ErrCrashed, state, cause, p.stderr.text())
}

// kill ends the child, waits for it and its reader, and returns how it ended.
func (p *Process) kill() string {
	if p.cmd == nil {
		return "not running"
	}
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	state := p.cmd.ProcessState.String()
	for range p.got { // until the reader is gone
	}
	p.cmd = nil
	return state
}

// tail keeps the end of the written text.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - 4096; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return string(t.b) }
