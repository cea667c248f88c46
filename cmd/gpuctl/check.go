package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

type checkCmd struct {
	Program     string `arg:"" help:"A module (.spv), GLSL to be compiled (.comp, .glsl), a bundle, or the name of a program that comes with the service."`
	dataArgs    `embed:""`
	constArgs   `embed:""`
	compileArgs `embed:""`
	Subgroup    int `help:"Lanes of a subgroup: 8, 16, 32 or 64." default:"32" placeholder:"N"`
}

// Help is shown by "gpuctl check --help".
func (checkCmd) Help() string {
	return `Runs the program in this process, one workgroup after the other, and watches every access. Needs no service and no device. It reports

  data races         two lanes use the same memory, one writes, and no barrier is between
  uninitialized      shared memory is read before anything was written to it
  divergent barriers not all lanes of a workgroup reach a barrier together
  traps              accesses out of bounds, division by zero and the like

with the line of the source where the module tells it (glslangValidator -g; a .comp file is compiled so).

Exit status: 0 if nothing was found, 1 if something was.

Examples:

  gpuctl check reduce.comp --random 10000 --out-shape 1

  gpuctl check vecadd_f32 --in a.npy --in b.npy`
}

// hostLimits are the limits in this process: those of the profile, and a
// workstation's memory.
var hostLimits = deviceLimits{name: "this process", maxGridDim: 65535, maxBlockDim: program.MaxBlockThreads, maxThreads: program.MaxBlockThreads, maxBufferBytes: 16 << 30}

// Run checks the program.
func (c *checkCmd) Run(ctx context.Context, a *app) error {
	w, err := newWork(a, c.dataArgs)
	if err != nil {
		return err
	}

	bundle, err := c.localProgram(ctx, c.Program, true)
	if err != nil {
		return err
	}
	if bundle, err = c.apply(c.Program, bundle); err != nil {
		return err
	}

	p, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return err
	}

	w.limits = hostLimits
	defer w.closeInputs()
	if err := w.resolve(infoOfProgram(&p.Info)); err != nil {
		return err
	}

	kernel, err := lane.Compile(p, lane.Options{SubgroupSize: c.Subgroup, Block: w.block, SharedBytes: w.args.Shared, Check: true})
	if err != nil {
		return err
	}

	w.progress.start()
	err = w.load(ctx, func(_ int, bytes uint64) ([]byte, error) { return make([]byte, bytes), nil })
	if err != nil {
		return err
	}

	worker := kernel.NewWorker()
	trap, err := w.execute(ctx, worker, &p.Info)
	w.progress.clear()
	if err != nil {
		return err
	}

	r := checkResult{Program: w.info.Name, Workgroups: w.grid.Count(), Findings: []finding{}, Warnings: p.Info.Warnings}
	for _, f := range worker.Findings() {
		r.Findings = append(r.Findings, finding{f, f.Kind.String()})
	}

	if trap.Kind != outcome.NoTrap {
		r.Trap = &trapInfo{Kind: trap.Kind.String(), Binding: trap.Binding, Offset: trap.Offset, Workgroup: trap.Workgroup, Lane: trap.Lane}
	}

	var saved result
	if r.Trap == nil {
		if err := w.save(ctx, &saved, func() error { return nil }); err != nil {
			return err
		}
		r.Outputs = saved.Outputs
	}

	return a.printCheck(&r)
}

// execute runs the grid until it ends, traps, or is interrupted.
func (w *work) execute(ctx context.Context, worker *lane.Worker, i *program.Info) (outcome.Trap, error) {
	if w.grid == (program.Dim3{}) {
		var sizes []uint64
		for _, mem := range w.memory {
			sizes = append(sizes, uint64(len(mem)))
		}
		w.grid, _ = i.NaturalGrid(sizes)
	}

	var stop atomic.Uint32
	defer context.AfterFunc(ctx, func() { stop.Store(1) })()
	l := &lane.Launch{Grid: w.grid, Bindings: w.memory, Inline: w.inline}
	// The grid runs in one go, because the checker compares workgroups of one Run
	// with each other.
	defer w.showElapsed("checking " + w.info.Name)()

	r := worker.Run(l, 0, w.grid.Count(), &stop)
	if r.Stopped {
		return outcome.Trap{}, errInterrupted
	}

	return r.Trap, nil
}

// finding is a lane.Finding for people and scripts.
type finding struct {
	lane.Finding
	Kind string `json:"kind"`
}

// checkResult is the report of "gpuctl check", and its JSON form.
type checkResult struct {
	Program    string               `json:"program"`
	Workgroups uint64               `json:"workgroups"`
	Findings   []finding            `json:"findings"`
	Trap       *trapInfo            `json:"trap,omitempty"`
	Warnings   []program.Diagnostic `json:"warnings,omitempty"`
	Outputs    []outputIO           `json:"outputs,omitempty"`
}

func (a *app) printCheck(r *checkResult) error {
	found := len(r.Findings)
	if r.Trap != nil && found == 0 {
		found = 1
	}

	if a.json {
		a.printJSON(r)
	} else {
		fmt.Fprintf(a.out, "%s: %s in %s\n", visible(r.Program), plural(found, "finding"), plural(int(r.Workgroups), "workgroup"))
		for _, f := range r.Findings {
			fmt.Fprintf(a.out, "  %s\n", visible(f.String()))
		}
		if r.Trap != nil && len(r.Findings) == 0 {
			of := fmt.Sprintf("binding %d", r.Trap.Binding)
			if r.Trap.Binding == outcome.NoBinding {
				of = "no binding"
			}
			fmt.Fprintf(a.out, "  trap %s: %s, byte %s, workgroup %s, lane %d\n", r.Trap.Kind, of, countText(r.Trap.Offset), countText(uint64(r.Trap.Workgroup)), r.Trap.Lane)
		}
		for _, d := range r.Warnings {
			fmt.Fprintf(a.out, "  warning %s\n", visible(d.String()))
		}
	}

	if found > 0 {
		return &failedWork{exitFailed}
	}

	return nil
}
