// Package opencl runs OpenCL C kernels on PoCL, a driver for CPUs that compiles with
// clang and shares nothing with Mesa, as a third opinion.
//
// As with package vulkan, the driver lives in a child process that is killed when a
// job does not end in time; the child is the same executable, started again: a
// program that uses this package calls Main first thing in main or TestMain. A
// Process belongs to one goroutine at a time; Close kills the child and waits for
// it.
//
// The package needs libOpenCL.so.1 and PoCL (Debian: ocl-icd-libopencl1,
// pocl-opencl-icd) at run time, no C compiler and no headers.
package opencl

import (
	"fmt"
	"strings"
	"time"

	"capgpu/bench/child"
)

// Job is one launch: buffers in, buffers out. The kernel is called main_, and its
// arguments are the existing buffers, in order, then Inline as one more.
type Job struct {
	Source   string // OpenCL C 1.2
	Grid     [3]uint32
	Block    [3]uint32
	Inline   []byte
	Bindings [][]byte // nil for an unused one
	Timeout  time.Duration
}

// Errors of Run. Both are facts about the job, if nothing else is wrong with the
// machine; the child is a new one afterwards.
var (
	ErrTimeout = child.ErrTimeout
	ErrCrashed = child.ErrCrashed
)

// Result is an error code of OpenCL.
type Result struct {
	Call string
	Code int32
	Log  string // of a build
}

// Error names the call and the code of cl.h.
func (r *Result) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %d %s", r.Call, r.Code, r.Log))
}

// reply is a child's answer; the first one, to no job, has Device.
type reply struct {
	Device   string
	Bindings [][]byte
	Err      string
}
