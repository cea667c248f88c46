package backend

import "capgpu/gpuerr"

// The core has checked every job before a backend gets it; a job that gets there wrong is a bug
// of the core. These are the checks that backends share.

// CheckMove refuses a copy or a fill that has not the spans of one.
func CheckMove(job *Job) error {
	switch {
	case job.Op == OpCopy && (len(job.Spans) != 2 || len(job.Spans[0].Host) != len(job.Spans[1].Host)):
		return gpuerr.New(gpuerr.Invalid, "a copy has two spans of equal length")
	case job.Op == OpFill && len(job.Spans) != 1:
		return gpuerr.New(gpuerr.Invalid, "a fill has one span, not %d", len(job.Spans))
	}
	return nil
}

// CheckLaunch refuses a launch that does not suit its program, or is beyond the limits of the
// device.
func CheckLaunch(job *Job, info *ProgramInfo, l *Limits) error {
	if len(job.Spans) != len(info.Bindings) {
		return gpuerr.New(gpuerr.Invalid, "program %s has %d bindings, the job %d", info.Name, len(info.Bindings), len(job.Spans))
	}
	if uint64(len(job.Inline)) != uint64(info.InlineBytes) {
		return gpuerr.New(gpuerr.Invalid, "program %s takes %d inline bytes, the job has %d", info.Name, info.InlineBytes, len(job.Inline))
	}
	if job.Shared > l.MaxSharedBytes {
		return tooLarge("shared", uint64(job.Shared), uint64(l.MaxSharedBytes))
	}
	for _, n := range [...]uint32{job.Grid.X, job.Grid.Y, job.Grid.Z} {
		if n == 0 || n > l.MaxGridDim {
			return tooLarge("grid", uint64(n), uint64(l.MaxGridDim))
		}
	}
	for _, n := range [...]uint32{job.Block.X, job.Block.Y, job.Block.Z} {
		if n == 0 || n > l.MaxBlockDim {
			return tooLarge("block", uint64(n), uint64(l.MaxBlockDim))
		}
	}
	if !info.BlockFree && job.Block != info.Block {
		return gpuerr.New(gpuerr.LaunchLimit, "program %s is made for workgroups of %v, not %v", info.Name, info.Block, job.Block)
	}
	if threads := job.Block.Count(); threads > uint64(l.MaxThreadsPerBlock) {
		return tooLarge("threads per block", threads, uint64(l.MaxThreadsPerBlock))
	}
	return nil
}

// tooLarge is the refusal of a launch. Grid and block must not be 0 either.
func tooLarge(what string, asked, limit uint64) error {
	return &gpuerr.Error{Code: gpuerr.LaunchLimit, Asked: asked, Available: limit, Msg: what + " is outside the limits of the device"}
}
