package accel

import (
	"context"
	"errors"
	"fmt"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Code is a stable diagnostic: the Abstract Device Machine's, or the accelerator runtime
// model's. It is an error for errors.Is.
type Code string

const (
	// DeviceError: work ended failed, innocent, timed out or with the device. It is sticky: all
	// later calls of the GPU say so, with the text of the first.
	DeviceError Code = "P-GPU-5001"
	// OutOfMemory: the device has no memory left for this session, or never as much.
	OutOfMemory Code = "P-GPU-5002"
	// LaunchLimits: the launch exceeds a limit of the device.
	LaunchLimits Code = "P-GPU-5003"
	// ForeignEvent: the event is of another GPU. It is an InvalidEvent too.
	ForeignEvent Code = "P-GPU-5004"
	// NotPlain: an element type with pointers, bools, padding or ints of no fixed size.
	NotPlain Code = "E-GPU-4005"

	InvalidStream     Code = "ACCEL_INVALID_STREAM"     // closed
	InvalidEvent      Code = "ACCEL_INVALID_EVENT"      // the zero event, or one that has not ended
	DeviceUnavailable Code = "ACCEL_DEVICE_UNAVAILABLE" // the device, its driver or the session is gone
	EnqueueFailed     Code = "ACCEL_ENQUEUE_FAILED"     // refused; nothing was queued
	BorrowActive      Code = "ACCEL_BORROW_ACTIVE"      // the buffer is in use until a wait
	Freed             Code = "ACCEL_FREED"              // the buffer was freed, or consumed by a transfer
)

// Error makes a Code an error value.
func (c Code) Error() string { return string(c) }

// Error is a failed call. errors.Is finds its Code and errors.As what it wraps: a
// *gpuerr.Error, or a *client.OutcomeError for work that ran.
type Error struct {
	Code Code
	Op   string // "Launch vecadd_f32"
	Msg  string // may be empty
	Err  error  // may be nil
}

// Error is "P-GPU-5003: Launch vecadd_f32: what is wrong".
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Op
	if e.Msg != "" {
		s += ": " + e.Msg
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, accel.DeviceError) work.
func (e *Error) Is(target error) bool {
	return target == e.Code || e.Code == ForeignEvent && target == InvalidEvent
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(code Code, op, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Msg: fmt.Sprintf(format, args...)}
}

// limit is a P-GPU-5003 with its numbers.
func limit(op, what string, asked, available uint64) *Error {
	e := gpuerr.New(gpuerr.LaunchLimit, "%s", what)
	e.Asked, e.Available = asked, available
	return &Error{Code: LaunchLimits, Op: op, Err: e}
}

// ended is work that ended otherwise than ok. Work is revoked with what it ran in or on.
func ended(op string, how outcome.Outcome) *Error {
	e := &Error{Code: DeviceError, Op: op, Err: &client.OutcomeError{Outcome: how}}
	if how.Kind == outcome.Revoked {
		e.Code = DeviceUnavailable
	}
	return e
}

// wrap gives an error of the client its code; other is that of a refusal. The error of a context
// that ended stays what it is.
func wrap(other Code, op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", op, err)
	}

	code := other
	switch gpuerr.CodeOf(err) {
	case gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Revoked, gpuerr.Closed, gpuerr.NoDevice, gpuerr.Banned, gpuerr.Busy:
		code = DeviceUnavailable
	case gpuerr.Poisoned:
		code = DeviceError
	case gpuerr.LaunchLimit:
		code = LaunchLimits
	}
	return &Error{Code: code, Op: op, Err: err}
}
