package oracle

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/verify"
)

// Lane is the lane engine, in one of its modes.
type Lane struct {
	SubgroupSize int
	// Workers share the workgroups, Cut at a time; a Cut of 0 gives one worker all.
	Workers int
	Cut     uint64
	Check   bool // a finding of the checker is an error
}

// Name describes the mode.
func (e *Lane) Name() string {
	name := fmt.Sprintf("lane, subgroups of %d", e.SubgroupSize)
	if e.Cut > 0 {
		name += fmt.Sprintf(", %d workers, %d workgroups at a time", e.Workers, e.Cut)
	}
	if e.Check {
		name += ", checked"
	}
	return name
}

// Close does nothing.
func (e *Lane) Close() {}

// ErrTooLarge means that a program exceeds the limits of the profile.
var ErrTooLarge = errors.New("beyond the limits of the profile")

// Admit is the verifier's verdict on a launch's module.
func Admit(l *Launch) (*verify.Program, error) {
	bundle, err := program.Encode(l.SPIRV, l.Manifest)
	if err != nil {
		return nil, err
	}
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	var r *program.Refusal
	if errors.As(err, &r) && (slices.Contains([]string{verify.CodeStack, verify.CodeExpansion, verify.CodeLarge}, r.Code)) {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return p, err
}

const laneLimit = time.Minute

// Run implements Engine.
func (e *Lane) Run(l *Launch) ([][]byte, error) {
	p, err := Admit(l)
	if err != nil {
		return nil, err
	}

	k, err := lane.Compile(p, lane.Options{SubgroupSize: e.SubgroupSize, Block: l.Block, Check: e.Check})
	if err != nil {
		return nil, err
	}

	out := make([][]byte, len(l.Bindings))
	for i, b := range l.Bindings {
		if b != nil {
			out[i] = append([]byte{}, b...)
		}
	}

	launch := lane.Launch{Grid: l.Grid, Inline: l.Inline, Bindings: make([][]byte, len(p.Info.Bindings))}
	copy(launch.Bindings, out)
	groups := uint64(l.Grid.X) * uint64(l.Grid.Y) * uint64(l.Grid.Z)
	cut := e.Cut
	if cut == 0 {
		cut = groups
	}

	var next, stop = atomic.Uint64{}, atomic.Uint32{}
	timer := time.AfterFunc(laneLimit, func() { stop.Store(1) })
	defer timer.Stop()
	errs := make([]error, max(e.Workers, 1))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			w := k.NewWorker()
			for from := next.Add(cut) - cut; from < groups && errs[i] == nil; from = next.Add(cut) - cut {
				errs[i] = e.share(w, &launch, from, min(from+cut, groups), &stop)
			}
		})
	}

	wg.Wait()
	return out, errors.Join(errs...)
}

func (e *Lane) share(w *lane.Worker, l *lane.Launch, from, to uint64, stop *atomic.Uint32) error {
	r := w.Run(l, from, to, stop)
	switch {
	case r.Trap.Kind != outcome.NoTrap:
		return fmt.Errorf("trap: %v", r.Trap)
	case r.Stopped:
		return fmt.Errorf("the kernel did not end in %v", laneLimit)
	}
	if found := w.Findings(); len(found) > 0 {
		return fmt.Errorf("%d findings, the first: %v", len(found), found[0])
	}
	return nil
}
