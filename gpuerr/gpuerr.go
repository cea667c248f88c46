// Package gpuerr is the closed set of errors that a client can receive.
//
// An Error carries a stable Code, a sentence that says what to do, and for a
// refusal the asked and the available amount. It crosses every wire unchanged: the
// control socket carries code and operands, Cap'n Proto carries them as the start
// of an exception's reason. docs/errors.md is this table.
//
// Test with errors.Is against a Code: errors.Is(err, gpuerr.Quota).
package gpuerr

import (
	"errors"
	"fmt"
)

// Class is the Cap'n Proto exception type of a code (rpc.capnp, Exception.Type).
type Class uint8

const (
	ClassFailed        Class = iota // the request is wrong, or the service has a bug
	ClassOverloaded                 // too much right now: quota, queue full
	ClassDisconnected               // the named object no longer exists
	ClassUnimplemented              // this capability has no such method
)

// Code is a stable error code. A Code is itself an error, the target of errors.Is.
type Code uint16

const (
	None          Code = iota
	Invalid            // an argument is outside its range; the message names the field
	Quota              // a ledger refused; Resource, Asked and Available are set
	QueueFull          // no free entry; take completions first
	Stale              // the handle's object was closed, or never was this session's
	Revoked            // another than the caller closed the session or an ancestor
	Closed             // closed by the caller itself
	Disconnected       // the driver or the connection is gone; open the device again
	DeviceLost         // the device itself is gone
	Unimplemented      // the held capability has no such method
	NoDevice           // no device of this index for this tenant
	NoProgram          // no program of this name
	Program            // the program was refused; the message says where
	LaunchLimit        // the launch exceeds a limit of the device; the message names it
	Protocol           // the peer broke the wire protocol
	Denied             // the policy refuses
	Busy               // temporarily unavailable (starting, recovering); try again
	Banned             // too many hangs; the message says why and until when
	Internal           // a bug of the service; the operation had no effect
	IO                 // the host refused memory, a descriptor or a file
	Poisoned           // work of this session trapped or faulted; the message says how
	Version            // two parts are of versions that do not fit; the message names both
	numCodes
)

type codeInfo struct {
	name  string
	class Class
}

var codes = [numCodes]codeInfo{
	None:          {"E_NONE", ClassFailed},
	Invalid:       {"E_INVALID", ClassFailed},
	Quota:         {"E_QUOTA", ClassOverloaded},
	QueueFull:     {"E_QUEUE_FULL", ClassOverloaded},
	Stale:         {"E_STALE", ClassDisconnected},
	Revoked:       {"E_REVOKED", ClassDisconnected},
	Closed:        {"E_CLOSED", ClassDisconnected},
	Disconnected:  {"E_DISCONNECTED", ClassDisconnected},
	DeviceLost:    {"E_DEVICE_LOST", ClassDisconnected},
	Unimplemented: {"E_UNIMPLEMENTED", ClassUnimplemented},
	NoDevice:      {"E_NO_DEVICE", ClassFailed},
	NoProgram:     {"E_NO_PROGRAM", ClassFailed},
	Program:       {"E_PROGRAM", ClassFailed},
	LaunchLimit:   {"E_LAUNCH_LIMIT", ClassFailed},
	Protocol:      {"E_PROTOCOL", ClassFailed},
	Denied:        {"E_DENIED", ClassFailed},
	Busy:          {"E_BUSY", ClassOverloaded},
	Banned:        {"E_BANNED", ClassOverloaded},
	Internal:      {"E_INTERNAL", ClassFailed},
	IO:            {"E_IO", ClassFailed},
	Poisoned:      {"E_POISONED", ClassFailed},
	Version:       {"E_VERSION", ClassFailed},
}

// Valid reports whether c is a code of this table. Validate codes read from a wire.
func (c Code) Valid() bool { return c > None && c < numCodes }

// String is the stable name, "E_QUOTA".
func (c Code) String() string {
	if c < numCodes {
		return codes[c].name
	}
	return fmt.Sprintf("E_%d", uint16(c))
}

// Error makes a Code an error value.
func (c Code) Error() string { return c.String() }

// Class is the exception type of the code.
func (c Code) Class() Class {
	if c < numCodes {
		return codes[c].class
	}
	return ClassFailed
}

// Codes lists every code, in numeric order.
func Codes() []Code {
	all := make([]Code, 0, numCodes-1)
	for c := Invalid; c < numCodes; c++ {
		all = append(all, c)
	}
	return all
}

// Error is a refusal or failure with its operands.
type Error struct {
	Code      Code
	Resource  string // ledger class name; only with Quota
	Asked     uint64 // only with Quota and LaunchLimit
	Available uint64 // only with Quota and LaunchLimit
	Msg       string // the mistake and its remedy; may be empty
}

// New makes an Error with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Refused makes the error of a ledger refusal. Amounts are in the unit of the resource.
func Refused(resource string, asked, available uint64) *Error {
	return &Error{Code: Quota, Resource: resource, Asked: asked, Available: available}
}

// Error is "E_QUOTA deviceMemory asked=1048576 available=4096: message".
func (e *Error) Error() string {
	s := e.Code.String()
	if e.Resource != "" {
		s += " " + e.Resource
	}
	if e.Code == Quota || e.Asked != 0 || e.Available != 0 {
		s += fmt.Sprintf(" asked=%d available=%d", e.Asked, e.Available)
	}
	if e.Msg != "" {
		s += ": " + e.Msg
	}
	return s
}

// Is makes errors.Is(err, gpuerr.Quota) work.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// CodeOf returns the code of err, or Internal for an error of no code, or None
// for nil.
func CodeOf(err error) Code {
	if err == nil {
		return None
	}
	return From(err).Code
}

// From returns err as an *Error; an error without a code becomes Internal. The
// message of a foreign error is kept: callers at a trust boundary that must not
// reveal it build their own.
func From(err error) *Error {
	if err == nil {
		return nil
	}

	var e *Error
	if errors.As(err, &e) {
		if err == error(e) {
			return e
		}
		wrapped := *e
		wrapped.Msg = err.Error()
		return &wrapped
	}

	var c Code
	if errors.As(err, &c) {
		return &Error{Code: c, Msg: err.Error()}
	}

	return &Error{Code: Internal, Msg: err.Error()}
}
