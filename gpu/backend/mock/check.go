package mock

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// checkJob refuses what the device cannot be given. The core has checked all of
// it before; a job that gets here wrong is a bug of the core.
func checkJob(job *backend.Job) error {
	if job == nil {
		return gpuerr.New(gpuerr.Invalid, "job is nil")
	}
	if len(job.Spans) > maxBindings {
		return gpuerr.New(gpuerr.LaunchLimit, "job has %d spans; the device has %d bindings", len(job.Spans), maxBindings)
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
	case backend.OpList:
		return checkList(job)
	default:
		return gpuerr.New(gpuerr.Invalid, "op %d is not launch, copy, fill or list", job.Op)
	}
	return nil
}

func checkLaunch(job *backend.Job) error {
	c, ok := job.Program.(*code)
	if !ok || c == nil {
		return gpuerr.New(gpuerr.Invalid, "the program is not one of this device")
	}
	info := &c.program.Info
	if len(job.Spans) != len(info.Bindings) {
		return gpuerr.New(gpuerr.Invalid, "program %s has %d bindings, the job %d", info.Name, len(info.Bindings), len(job.Spans))
	}
	if uint64(len(job.Inline)) != uint64(info.InlineBytes) {
		return gpuerr.New(gpuerr.Invalid, "program %s takes %d inline bytes, the job has %d", info.Name, info.InlineBytes, len(job.Inline))
	}
	if job.Shared > limits.MaxSharedBytes {
		return tooLarge("shared", uint64(job.Shared), uint64(limits.MaxSharedBytes))
	}
	for _, n := range [...]uint32{job.Grid.X, job.Grid.Y, job.Grid.Z} {
		if n == 0 || n > limits.MaxGridDim {
			return tooLarge("grid", uint64(n), uint64(limits.MaxGridDim))
		}
	}
	for _, n := range [...]uint32{job.Block.X, job.Block.Y, job.Block.Z} {
		if n == 0 || n > limits.MaxBlockDim {
			return tooLarge("block", uint64(n), uint64(limits.MaxBlockDim))
		}
	}
	if !info.BlockFree && job.Block != info.Block {
		return gpuerr.New(gpuerr.LaunchLimit, "program %s is made for workgroups of %v, not %v", info.Name, info.Block, job.Block)
	}
	if threads := job.Block.Count(); threads > uint64(limits.MaxThreadsPerBlock) {
		return tooLarge("threads per block", threads, uint64(limits.MaxThreadsPerBlock))
	}
	return nil
}

// tooLarge is the refusal of a launch. Grid and block must not be 0 either.
func tooLarge(what string, asked, limit uint64) error {
	return &gpuerr.Error{Code: gpuerr.LaunchLimit, Asked: asked, Available: limit, Msg: what + " is outside the limits of the device"}
}
