package edu

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// checkJob refuses what the device cannot be given. The core has checked all of it
// before, but for the reach: a job that gets here wrong is a bug of the core.
func checkJob(job *backend.Job, l *backend.Limits) error {
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
	case backend.OpCopy, backend.OpFill:
		return backend.CheckMove(job)
	case backend.OpLaunch:
		return checkLaunch(job, l)
	default:
		return gpuerr.New(gpuerr.Invalid, "op %d is not launch, copy or fill", job.Op)
	}
}

func checkLaunch(job *backend.Job, l *backend.Limits) error {
	if p, ok := job.Program.(*factorial); !ok || p == nil {
		return gpuerr.New(gpuerr.Invalid, "the program is not one of this device")
	}
	return backend.CheckLaunch(job, &theFactorial.info, l)
}
