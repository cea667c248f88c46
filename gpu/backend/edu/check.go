package edu

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// checkJob refuses what the device cannot be given. The core has checked all of it
// before, but for the reach: a job that gets here wrong is a bug of the core.
func checkJob(job *backend.Job) error {
	if job == nil {
		return gpuerr.New(gpuerr.Invalid, "job is nil")
	}
	if len(job.Spans) > 2 {
		return gpuerr.New(gpuerr.LaunchLimit, "job has %d spans; the device has 2 bindings", len(job.Spans))
	}
	for i, s := range job.Spans {
		if !reaches(s.IOVA, uint64(len(s.Host))) {
			return gpuerr.New(gpuerr.Invalid, "span %d, of %d bytes at %#x, is beyond the %d address bits of the device", i, len(s.Host), s.IOVA, dmaBits)
		}
	}
	switch job.Op {
	case backend.OpCopy:
		if len(job.Spans) != 2 || len(job.Spans[0].Host) != len(job.Spans[1].Host) {
			return gpuerr.New(gpuerr.Invalid, "a copy has two spans of equal length")
		}
	case backend.OpFill:
		if len(job.Spans) != 1 {
			return gpuerr.New(gpuerr.Invalid, "a fill has one span, not %d", len(job.Spans))
		}
	case backend.OpLaunch:
		return checkLaunch(job)
	default:
		return gpuerr.New(gpuerr.Invalid, "op %d is not launch, copy or fill", job.Op)
	}
	return nil
}

func checkLaunch(job *backend.Job) error {
	if p, ok := job.Program.(*factorial); !ok || p == nil {
		return gpuerr.New(gpuerr.Invalid, "the program is not one of this device")
	}
	switch {
	case len(job.Spans) != 2:
		return gpuerr.New(gpuerr.Invalid, "program %s has 2 bindings, the job %d", factorialName, len(job.Spans))
	case len(job.Inline) != 0:
		return gpuerr.New(gpuerr.Invalid, "program %s takes no inline bytes, the job has %d", factorialName, len(job.Inline))
	case job.Shared != 0:
		return tooLarge("shared", uint64(job.Shared), 0)
	}
	for _, n := range [...]uint32{job.Grid.X, job.Grid.Y, job.Grid.Z} {
		if n == 0 || n > maxGrid {
			return tooLarge("grid", uint64(n), maxGrid)
		}
	}
	for _, n := range [...]uint32{job.Block.X, job.Block.Y, job.Block.Z} {
		if n == 0 || n > maxBlock {
			return tooLarge("block", uint64(n), maxBlock)
		}
	}
	if threads := job.Block.Count(); threads > maxBlock {
		return tooLarge("threads per block", threads, maxBlock)
	}
	return nil
}

// tooLarge is the refusal of a launch. Grid and block must not be 0 either.
func tooLarge(what string, asked, limit uint64) error {
	return &gpuerr.Error{Code: gpuerr.LaunchLimit, Asked: asked, Available: limit, Msg: what + " is outside the limits of the device"}
}
