// Package child gives jobs to a driver in a child process, which may crash or never
// answer.
//
// The child is the same executable, started again with a mark in its environment.
// Its answers have a pipe of their own, because a driver may print to stdout:
//
//	Process.Ask ──job──► stdin of the child: Main ─► open, do
//	            ◄─answer─ descriptor 3
package child

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

// Errors of Ask. Both are facts about the job, if nothing else is wrong with the
// machine.
var (
	ErrTimeout = errors.New("the kernel did not end in time")
	ErrCrashed = errors.New("the driver's process died")
)

const openTimeout = 30 * time.Second // the first one reads some 150 MB of libraries

// Main does the jobs of a parent and does not return, if Start with this mark
// started this process; otherwise it does nothing. open returns the first answer,
// to no job, and the function that does a job: nil if there is no driver.
func Main[Job, Answer any](mark string, open func() (Answer, func(*Job) Answer)) {
	if os.Getenv(mark) == "" {
		return
	}
	out := os.NewFile(3, "answers")
	if out == nil || serve(gob.NewDecoder(os.Stdin), gob.NewEncoder(out), open) != nil {
		os.Exit(1)
	}
	os.Exit(0) // without the driver's own clean-up: nothing here outlives us
}

func serve[Job, Answer any](jobs *gob.Decoder, answers *gob.Encoder, open func() (Answer, func(*Job) Answer)) error {
	first, do := open()
	if err := answers.Encode(&first); err != nil || do == nil {
		return err
	}

	for {
		var j Job
		if err := jobs.Decode(&j); err != nil {
			return nil // the parent is done
		}
		a := do(&j)
		if err := answers.Encode(&a); err != nil {
			return err
		}
	}
}

// Process is a child that answers one job at a time. It belongs to one goroutine at
// a time.
type Process[Job, Answer any] struct {
	cmd    *exec.Cmd
	stderr *tail

	in      io.Closer
	jobs    *gob.Encoder
	out     io.Closer
	answers *gob.Decoder
}

// Start starts a child with some more environment, and returns its first answer.
func Start[Job, Answer any](mark string, env ...string) (*Process[Job, Answer], *Answer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}

	cmd, stderr := exec.Command(self), &tail{}
	cmd.Env = append(append(os.Environ(), mark+"=1"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = stderr

	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer write.Close()
	cmd.ExtraFiles = []*os.File{write} // 3

	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = read.Close()
		return nil, nil, err
	}
	_ = write.Close() // the child's end alone keeps the pipe open

	p := &Process[Job, Answer]{
		cmd: cmd, stderr: stderr,
		in: stdin, jobs: gob.NewEncoder(stdin), out: read, answers: gob.NewDecoder(read),
	}
	first, err := p.Ask(nil, openTimeout)
	if err != nil {
		return nil, nil, err
	}
	return p, first, nil
}

// Ask sends a job, if there is one, and waits for the child's answer. After an error
// the process is closed.
func (p *Process[Job, Answer]) Ask(j *Job, limit time.Duration) (*Answer, error) {
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() { late.Store(true); _ = p.cmd.Process.Kill() })
	defer timer.Stop()

	var err error
	if j != nil {
		err = p.jobs.Encode(j)
	}
	a := new(Answer)
	if err == nil {
		err = p.answers.Decode(a)
	}
	if err == nil {
		return a, nil
	}

	p.Close()
	if late.Load() {
		return nil, ErrTimeout
	}
	return nil, fmt.Errorf("%w (%s; %w): %s", ErrCrashed, p.cmd.ProcessState, err, p.stderr.b.Bytes())
}

// Close kills the child and waits for it. It may be called again.
func (p *Process[Job, Answer]) Close() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.out.Close()
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
