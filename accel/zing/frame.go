package zing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"capgpu/accel"
	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

const (
	magic          = "ZCL1"
	version        = 1
	requestHeader  = 24
	responseHeader = 20
	openAnswer     = responseHeader + 4 + 12 // of CAPS_OPEN
)

// The operations of _ctl.
const (
	opList     = 1
	opDescribe = 2
	opOpen     = 3
)

// A failure is an error envelope.
type failure struct {
	trace, msg string
}

func (f *failure) Error() string { return f.trace + ": " + f.msg }

func fail(trace, format string, args ...any) *failure {
	return &failure{trace, fmt.Sprintf(format, args...)}
}

func badParams(format string, args ...any) *failure { return fail("t_ctl_bad_params", format, args...) }

// A call is a request that is well formed as a frame.
type call struct {
	op      uint16
	timeout uint32 // milliseconds
	payload []byte
}

// parse looks at the frame of a request, in the order of the ABI. The answer has op and rid whatever
// is wrong: without them (ok false) there is none.
func parse(req []byte) (c call, ok bool, err error) {
	if len(req) < 12 {
		return c, false, nil
	}
	c.op = binary.LittleEndian.Uint16(req[6:])
	if string(req[:4]) != magic || len(req) < requestHeader {
		return c, true, fail("t_ctl_bad_frame", "no ZCL1 request")
	}
	if v := binary.LittleEndian.Uint16(req[4:]); v != version {
		return c, true, fail("t_ctl_bad_version", "version %d; this is version %d", v, version)
	}
	c.timeout, c.payload = binary.LittleEndian.Uint32(req[12:]), req[requestHeader:]
	if binary.LittleEndian.Uint32(req[16:]) != 0 || uint64(binary.LittleEndian.Uint32(req[20:])) != uint64(len(c.payload)) {
		return c, true, fail("t_ctl_bad_frame", "flags are 0, and payload_len is what follows")
	}
	return c, true, nil
}

// answer is the response to a request: a result, or the envelope of an error.
func answer(req, result []byte, err error) []byte {
	b := make([]byte, 0, responseHeader+4+len(result))
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	b = append(b, req[6:12]...) // op and rid
	b = appendH8(b, 0)          // flags, and room for the length
	if err == nil {
		b = append(b, 1, 0, 0, 0)
		b = append(b, result...)
	} else {
		f := failureOf(err)
		b = append(b, 0, 0, 0, 0)
		b = appendBytes(appendBytes(appendBytes(b, f.trace), f.msg), "")
	}
	binary.LittleEndian.PutUint32(b[16:], uint32(len(b)-responseHeader))
	return b
}

// failureOf is the envelope of any error. Errors of the service have the trace that
// docs/errors.md gives their code.
func failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}

	trace := "t_accel_launch_failed"
	if known, ok := traces[gpuerr.CodeOf(err)]; ok {
		trace = known
	} else if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		trace = "t_ctl_timeout"
	} else if errors.Is(err, accel.DeviceUnavailable) {
		trace = "t_accel_no_device"
	}
	return &failure{trace, err.Error()}
}

// traces are the seed codes of docs/errors.md.
var traces = map[gpuerr.Code]string{
	gpuerr.Invalid: "t_ctl_bad_params", gpuerr.QueueFull: "t_ctl_overflow",
	gpuerr.Quota: "t_cap_denied", gpuerr.Unimplemented: "t_cap_denied", gpuerr.Denied: "t_cap_denied",
	gpuerr.Banned: "t_cap_denied", gpuerr.IO: "t_cap_denied", gpuerr.Revoked: "t_cap_missing",
	gpuerr.Disconnected: "t_accel_no_device", gpuerr.DeviceLost: "t_accel_no_device", gpuerr.NoDevice: "t_accel_no_device",
	gpuerr.Busy: "t_accel_no_device", gpuerr.NoProgram: "t_accel_kernel_not_found",
	gpuerr.Program: "t_accel_launch_failed", gpuerr.LaunchLimit: "t_accel_launch_failed", gpuerr.Poisoned: "t_accel_launch_failed",
}

// ending is the record of a submission: how its work ended.
func ending(err error) []byte {
	if err == nil {
		return []byte{0}
	}
	f := failureOf(err)
	var how *client.OutcomeError
	var cause []byte
	if errors.As(err, &how) {
		o := how.Outcome
		cause = append(cause, byte(o.Kind), byte(o.Cause), byte(o.Trap.Kind), 0)
		cause = binary.LittleEndian.AppendUint16(cause, o.Trap.Binding)
		cause = append(cause, 0, 0)
		cause = appendH8(appendH4(appendH4(cause, o.Trap.Workgroup), o.Trap.Lane), o.Trap.Offset)

		f = &failure{"t_accel_launch_failed", o.String()}
		switch o.Kind {
		case outcome.TimedOut:
			f.trace = "t_ctl_timeout"
		case outcome.DeviceLost:
			f.trace = "t_accel_no_device"
		}
	}
	return appendBytes(appendBytes(appendBytes([]byte{1}, f.trace), f.msg), cause)
}
