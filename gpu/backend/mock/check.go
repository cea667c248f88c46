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
	case backend.OpCopy, backend.OpFill:
		return backend.CheckMove(job)
	case backend.OpLaunch:
		return checkLaunch(job)
	case backend.OpList:
		return checkList(job)
	default:
		return gpuerr.New(gpuerr.Invalid, "op %d is not launch, copy, fill or list", job.Op)
	}
}

func checkLaunch(job *backend.Job) error {
	c, ok := job.Program.(*code)
	if !ok || c == nil {
		return gpuerr.New(gpuerr.Invalid, "the program is not one of this device")
	}
	return backend.CheckLaunch(job, &c.program.Info, &limits)
}
