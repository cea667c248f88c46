package opencl

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	childEnv     = "CAPGPU_OPENCL_CHILD"
	openTimeout  = 30 * time.Second // the first one reads some 150 MB of libraries
	defaultLimit = 60 * time.Second // PoCL compiles when it launches
)

// Process is PoCL in a child process, started when there is a job.
type Process struct {
	device string
	cmd    *exec.Cmd
	in     io.Closer
	jobs   *gob.Encoder
	got    *gob.Decoder
	out    *os.File
	stderr *tail
	temp   string
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
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}

	limit := j.Timeout
	if limit <= 0 {
		limit = defaultLimit
	}

	r, err := p.ask(j, limit)
	if err != nil {
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
	if p.cmd == nil {
		return
	}
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.out.Close()
	_ = os.RemoveAll(p.temp)
	p.cmd = nil
}

func (p *Process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	temp, err := os.MkdirTemp("", "capgpu-pocl-")
	if err != nil {
		return err
	}

	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"=1",
		"POCL_CACHE_DIR="+temp, "POCL_KERNEL_CACHE=0", "POCL_MAX_PTHREAD_COUNT=1", "POCL_DEVICES=pthread", "TMPDIR="+temp)

	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr := &tail{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		_ = os.RemoveAll(temp)
		return err
	}

	read, write, err := os.Pipe()
	if err != nil {
		_ = stdin.Close()
		_ = os.RemoveAll(temp)
		return err
	}

	cmd.ExtraFiles = []*os.File{write} // 3: replies; a driver may print to stdout
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		_ = os.RemoveAll(temp)
		return err
	}

	*p = Process{device: p.device, cmd: cmd, in: stdin, jobs: gob.NewEncoder(stdin), got: gob.NewDecoder(read), out: read, stderr: stderr, temp: temp}
	r, err := p.ask(nil, openTimeout)
	if err != nil {
		return err
	}
	if r.Err != "" {
		p.Close()
		return errors.New(r.Err)
	}

	p.device = r.Device
	return nil
}

// ask sends a job, if there is one, and waits for the child's answer.
func (p *Process) ask(j *Job, limit time.Duration) (*reply, error) {
	var late atomic.Bool
	child := p.cmd.Process
	timer := time.AfterFunc(limit, func() { late.Store(true); _ = child.Kill() })
	defer timer.Stop()

	var r reply
	var err error
	if j != nil {
		err = p.jobs.Encode(j)
	}
	if err == nil {
		err = p.got.Decode(&r)
	}
	if err == nil {
		return &r, nil
	}

	p.Close()
	if late.Load() {
		return nil, ErrTimeout
	}

	return nil, fmt.Errorf("%w (%w): %s", ErrCrashed, err, p.stderr.b.Bytes())
}

// tail keeps the end of the written text.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	if over := t.b.Len() - 4096; over > 0 {
		t.b.Next(over)
	}
	return len(p), nil
}
