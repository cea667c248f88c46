package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/cmd/gpuctl/npy"
	"capgpu/outcome"
)

type runCmd struct {
	Program  string        `arg:"" optional:"" help:"Name of a program of the device, for instance vecadd_f32."`
	List     bool          `help:"List the programs of the device, with their bindings, and stop."`
	In       []string      `help:"Input for the next binding that the program reads, or NAME=FILE for the binding NAME (write ./ before a file whose name has a =). A .npy file or raw little-endian 32-bit values. Repeat for more." placeholder:"FILE" sep:"none" short:"i"`
	Out      []string      `help:"Where to save the next binding that the program writes, or NAME=FILE. A name ending in .npy gets a header, any other raw values. Repeat for more." placeholder:"FILE" sep:"none" short:"o"`
	Random   string        `help:"Generate N random elements for every input that has no file: floats from 0 up to 1, integers of the full range." placeholder:"N"`
	Seed     uint64        `help:"Seed of --random. The same seed gives the same input everywhere." default:"1"`
	Type     string        `help:"Element type of generated input and of outputs: f32, u32 or i32. Default: the suffix of the program's name, else the first input's type." placeholder:"TYPE"`
	OutShape string        `help:"Shape of every output. Default: that of the inputs; needed when these differ in size, or there are none." placeholder:"N|NxM"`
	Inline   []string      `help:"Constant argument, in order: f32:2.5, u32:7 or i32:-1. Repeat for more." placeholder:"TYPE:VALUE" sep:"none"`
	Grid     string        `help:"Workgroups. Default: as many as the bindings need." placeholder:"X[,Y[,Z]]"`
	Block    string        `help:"Threads of a workgroup. Default: the program's." placeholder:"X[,Y[,Z]]"`
	Deadline time.Duration `help:"Stop the work when it has run this long, for instance 30s. Default: the policy's." placeholder:"TIME"`
	Device   string        `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
	Progress bool          `help:"Report progress on standard error even if it is no terminal."`
}

// Help is shown by "gpuctl run --help".
func (runCmd) Help() string {
	return `Examples:

  gpuctl run vecadd_f32 --in a.npy --in b.npy --out c.npy

  gpuctl run saxpy_f32 --random 1048576 --inline f32:2.5 --out y.bin`
}

// job is a run on its way: what the user asked, resolved against the program.
type job struct {
	app      *app
	cmd      *runCmd
	progress *progress

	device   string
	random   uint64 // elements of --random, 0 without
	info     client.ProgramInfo
	describe client.Description
	dtype    npy.DType // of generated input and of outputs
	inputs   []*input  // one for each binding that the program reads
	outShape []uint64
	files    []string // output file of each binding, "" for none
	launch   client.Launch
	buffers  []*client.Buffer
	memory   [][]byte
}

func (c *runCmd) Run(ctx context.Context, a *app) (err error) {
	grid, err := parseDim("--grid", c.Grid)
	if err != nil {
		return err
	}
	block, err := parseDim("--block", c.Block)
	if err != nil {
		return err
	}
	inline, err := parseInline(c.Inline)
	if err != nil {
		return err
	}
	outShape, err := parseShape(c.OutShape)
	if err != nil {
		return err
	}
	random, err := parseRandom(c.Random)
	if err != nil {
		return err
	}
	if c.Type != "" {
		if _, ok := npy.ParseDType(c.Type); !ok {
			return usagef("--type %s: the types are f32, u32 and i32", c.Type)
		}
	}
	if c.Deadline < 0 {
		return usagef("--deadline %v: write a time that is not negative, like 30s", c.Deadline)
	}
	if c.Program == "" && !c.List {
		return usagef(`name the program to run, or use --list to see what there is`)
	}

	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	device, err := chooseDevice(ctx, conn, c.Device)
	if err != nil {
		return err
	}
	s, err := conn.Open(ctx, device.Index)
	if err != nil {
		return err
	}
	// Also after Ctrl-C the session is closed in order, so that its memory is
	// free when gpuctl is gone.
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		if e := s.Close(closing); err == nil {
			err = e
		}
	}()
	if c.List {
		return c.list(ctx, a, s)
	}

	j := &job{app: a, cmd: c, device: device.Name, random: random, outShape: outShape,
		launch:   client.Launch{Grid: grid, Block: block, Inline: inline, Deadline: c.Deadline},
		progress: &progress{w: a.err, on: c.Progress || a.errIsTerm, term: a.errIsTerm, now: a.now}}
	defer j.closeInputs()
	if err := j.resolve(ctx, s); err != nil {
		return err
	}
	result, err := j.run(ctx, s)
	j.progress.clear()
	if err != nil {
		return err
	}
	return a.printResult(result)
}

// run loads, computes and saves.
func (j *job) run(ctx context.Context, s *client.Session) (*result, error) {
	j.progress.start()
	r := &result{Program: j.info.Name, Device: j.device, Type: j.dtype.String()}
	begun := j.app.now()
	defer j.unmap()
	if err := j.load(ctx, s); err != nil {
		return nil, err
	}
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
	if err := j.save(ctx, r); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(j.files, func(path string) bool { return path != "" }) {
		r.SaveNanos = j.app.now().Sub(begun).Nanoseconds()
	}
	return r, nil
}

// compute launches the program and waits for its end. After Ctrl-C the work is
// cancelled and the end it then comes to is the result.
func (j *job) compute(ctx context.Context, q *client.Queue) (client.Completion, error) {
	defer j.showElapsed()()
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

// showElapsed draws the time while the device computes, until the returned
// function is called.
func (j *job) showElapsed() (stop func()) {
	begun := j.app.now()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(redrawEach)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				j.progress.elapsed("computing "+j.info.Name, j.app.now().Sub(begun))
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// list prints the programs of the device.
func (c *runCmd) list(ctx context.Context, a *app, s *client.Session) error {
	d, err := s.Describe(ctx)
	if err != nil {
		return err
	}
	type binding struct {
		Name   string `json:"name"`
		Access string `json:"access"`
	}
	type program struct {
		Name        string    `json:"name"`
		Bindings    []binding `json:"bindings"`
		InlineBytes uint32    `json:"inlineBytes"`
	}
	programs := []program{}
	rows := [][]string{}
	for _, name := range d.Programs {
		p, err := s.OpenProgram(ctx, name)
		if err != nil {
			return err
		}
		info := p.Info()
		out, texts := program{Name: info.Name, Bindings: []binding{}, InlineBytes: info.InlineBytes}, []string{}
		for _, b := range info.Bindings {
			out.Bindings = append(out.Bindings, binding{b.Name, b.Access.String()})
			texts = append(texts, fmt.Sprintf("%s (%s)", b.Name, b.Access))
		}
		if len(texts) == 0 {
			texts = append(texts, "-")
		}
		programs = append(programs, out)
		inline := "-"
		if info.InlineBytes > 0 {
			inline = fmt.Sprintf("%d x 4 bytes", info.InlineBytes/4)
		}
		rows = append(rows, []string{info.Name, inline, strings.Join(texts, ", ")})
		if err := p.Close(ctx); err != nil {
			return err
		}
	}
	if a.json {
		a.printJSON(programs)
		return nil
	}
	if len(rows) == 0 {
		fmt.Fprintln(a.out, "This tenant may not run programs on the device.")
		return nil
	}
	table(a.out, []string{"PROGRAM", "INLINE", "BINDINGS"}, rows)
	return nil
}

// errInterrupted ends a stage after Ctrl-C.
var errInterrupted = errors.New("interrupted")
