package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
)

type runCmd struct {
	Program     string `arg:"" optional:"" help:"Name of a program of the device, for instance vecadd_f32; its sha256:… digest; or a file: a module (.spv), GLSL to be compiled (.comp, .glsl), or a bundle."`
	dataArgs    `embed:""`
	constArgs   `embed:""`
	compileArgs `embed:""`
	Deadline    time.Duration `help:"Stop the work when it has run this long, for instance 30s. Default: the policy's." placeholder:"TIME"`
	Device      string        `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
}

// Help is shown by "gpuctl run --help".
func (runCmd) Help() string {
	return `Examples:

  gpuctl run vecadd_f32 --in a.npy --in b.npy --out c.npy

  gpuctl run saxpy_f32 --random 1048576 --inline 2.5 --out y.bin

  gpuctl run blur.comp --in image.npy --inline radius=3 --out blurred.npy

  gpuctl run reduce.comp --random 65536 --const WIDTH=128 --out sums.npy

  gpuctl run fp16.comp --target-env vulkan1.2 -DWIDTH=64 -Iinclude --in x=range:4096

  gpuctl run scatter.comp --in index.npy --in y=zeros:1000 --out y=y.npy

A .comp or .glsl file is compiled by glslangValidator or glslc. A manifest of the same name that
ends in .json, beside a module or source, goes with it.`
}

// job is a run in progress on the device of a service.
type job struct {
	work
	cmd      *runCmd
	device   string
	describe client.Description
	launch   client.Launch
	buffers  []*client.Buffer
}

func (c *runCmd) Run(ctx context.Context, a *app) (err error) {
	j := &job{cmd: c}
	if j.work, err = newWork(a, c.dataArgs); err != nil {
		return err
	}
	if c.Program == "" {
		return &hinted{usagef("name the program to run"), `"gpuctl programs" shows those of the device; a module or a source is named by its file.`}
	}
	if c.Deadline < 0 {
		return usagef("--deadline %v: write a time that is not negative, like 30s", c.Deadline)
	}

	bundle, isFile, err := c.programFile(ctx, c.Program, false)
	if err != nil {
		return err
	}
	if !isFile && len(c.Const) > 0 {
		return usagef("--const is for a program from a file; %s is the device's", c.Program)
	}
	if bundle, err = c.apply(c.Program, bundle); err != nil {
		return err
	}

	s, device, end, err := a.openSession(ctx, c.Device)
	if err != nil {
		return err
	}
	defer func() {
		if e := end(); err == nil {
			err = e
		}
	}()

	j.device = device
	j.launch.Deadline = c.Deadline
	defer j.closeInputs()
	if err := j.open(ctx, s, bundle, isFile); err != nil {
		return err
	}

	result, err := j.run(ctx, s)
	j.progress.clear()
	if err != nil {
		return err
	}

	return a.printResult(result)
}

// openSession opens a session on a device. The caller ends it, also after Ctrl-C,
// so that its memory is free when gpuctl is gone.
func (a *app) openSession(ctx context.Context, want string) (s *client.Session, device string, end func() error, err error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, "", nil, err
	}

	d, err := chooseDevice(ctx, conn, want)
	if err == nil {
		s, err = conn.Open(ctx, d.Index)
	}
	if err != nil {
		conn.Close()
		return nil, "", nil, refusal(d, err)
	}

	return s, d.Name, func() error {
		defer conn.Close()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		return s.Close(closing)
	}, nil
}

// refusal adds the reason why a device did not open.
func refusal(d client.DeviceInfo, err error) error {
	if d.Suspended && errors.Is(err, gpuerr.Busy) {
		return &hinted{err, fmt.Sprintf(`Its operator ends that with "gpuctl resume %s"; until then another device can be chosen with --device.`, d.Name)}
	}
	return err
}

// open opens or loads the program, and matches files with bindings.
func (j *job) open(ctx context.Context, s *client.Session, bundle []byte, isFile bool) error {
	d, err := s.Describe(ctx)
	if err != nil {
		return err
	}

	j.describe = d
	j.limits = deviceLimits{name: j.device, maxGridDim: d.MaxGridDim, maxBlockDim: d.MaxBlockDim, maxThreads: d.MaxThreadsPerBlock, maxBufferBytes: d.MaxBufferBytes}
	if d.Facet < client.FacetProgram {
		return gpuerr.New(gpuerr.Unimplemented, "this tenant may not run programs on %s, only move memory", j.device)
	}

	var p *client.Program
	if isFile {
		p, err = s.LoadProgram(ctx, bundle)
	} else {
		p, err = s.OpenProgram(ctx, j.cmd.Program)
	}

	if errors.Is(err, gpuerr.NoProgram) && len(d.Programs) > 0 {
		return &hinted{err, "This device has: " + strings.Join(d.Programs, ", ") + "."}
	}
	if err != nil {
		return err
	}

	j.launch.Program = p
	if j.launch.Deadline > d.MaxDeadline {
		return usagef("--deadline %v: at most %s is possible for this tenant", j.cmd.Deadline, durationText(d.MaxDeadline))
	}

	return j.resolve(infoOfClient(p.Info()))
}

// run loads, computes and saves.
func (j *job) run(ctx context.Context, s *client.Session) (*result, error) {
	j.progress.start()
	r := &result{Program: j.info.Name, Device: j.device}
	begun := j.app.now()
	defer j.unmap()

	err := j.load(ctx, func(i int, bytes uint64) ([]byte, error) { return j.allocate(ctx, s, i, bytes) })
	if err != nil {
		return nil, err
	}

	j.launch.Grid, j.launch.Block, j.launch.SharedBytes, j.launch.Inline = client.Dim3(j.grid), client.Dim3(j.block), j.args.Shared, j.inline
	r.LoadNanos = j.app.now().Sub(begun).Nanoseconds()

	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 2})
	if err != nil {
		return nil, err
	}

	done, err := j.compute(ctx, q)
	if err != nil {
		return nil, err
	}

	r.setOutcome(j, done)
	if done.Outcome.Kind != outcome.OK {
		return r, nil
	}

	begun = j.app.now()
	if err := j.save(ctx, r, q.Err); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(j.files, func(path string) bool { return path != "" }) {
		r.SaveNanos = j.app.now().Sub(begun).Nanoseconds()
	}

	return r, nil
}

// compute launches the program and waits for its end. Ctrl-C cancels the work, and
// the result is the end that it then has.
func (j *job) compute(ctx context.Context, q *client.Queue) (client.Completion, error) {
	defer j.showElapsed("computing " + j.info.Name)()
	if _, err := q.Submit(&j.launch); err != nil {
		return client.Completion{}, err
	}

	var done [1]client.Completion
	_, err := q.Completions(ctx, done[:])
	if err != nil && ctx.Err() != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.describe.HangBound+dialTimeout)
		defer cancel()
		if err = q.Cancel(ending); err == nil {
			_, err = q.Completions(ending, done[:])
		}
	}

	if err == nil {
		err = done[0].Err
	}

	return done[0], err
}

// allocate makes and maps the buffer of a binding.
func (j *job) allocate(ctx context.Context, s *client.Session, i int, bytes uint64) ([]byte, error) {
	usage := client.Storage
	if j.inputs[i] != nil {
		usage |= client.Upload
	}
	if j.info.Bindings[i].Access&program.Write != 0 {
		usage |= client.Readback
	}

	buf, err := s.CreateBuffer(ctx, bytes, usage)
	if err != nil {
		return nil, err
	}

	mem, err := buf.Map()
	if err != nil {
		return nil, err
	}

	j.buffers = append(j.buffers, buf)
	j.launch.Bindings = append(j.launch.Bindings, client.Binding{Buffer: buf, Len: bytes})
	return mem[:bytes], nil
}

func (j *job) unmap() {
	for _, b := range j.buffers {
		_ = b.Unmap() // the session's close comes next and reports errors that matter
	}
}

// errInterrupted ends a stage after Ctrl-C.
var errInterrupted = errors.New("interrupted")
