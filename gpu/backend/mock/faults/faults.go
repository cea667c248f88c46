// Package faults is what can be scripted to go wrong with the mock device. It is
// apart from the device so that the device-manager can check a script without
// having any engine in it.
package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/program/library"
)

// Script is what goes wrong with a device. The first fault that fits a job is its
// fault. As JSON:
//
//	{"seed": 7, "faults": [
//	  {"kind": "hang", "job": 3},
//	  {"kind": "slow", "program": "vecadd_f32", "duration": "20ms"},
//	  {"kind": "lostCompletion", "op": "copy", "probability": 0.1, "times": 2}
//	]}
//
// Faults are dealt out as jobs are submitted, so the same jobs in the same order
// meet the same faults, also where Run has run some of them.
type Script struct {
	Seed   uint64  `json:"seed,omitempty"` // of the probabilities
	Faults []Fault `json:"faults"`
}

// Fault is one thing that goes wrong, with the jobs that it concerns: those that
// fit all of Job, Op, Program and Match, each of which may be left out.
type Fault struct {
	Kind        Kind     `json:"kind"`
	Job         uint64   `json:"job,omitempty"` // ordinal of the job on this device, from 1
	Op          string   `json:"op,omitempty"`  // "launch", "copy", "fill" or "list"
	Program     string   `json:"program,omitempty"`
	Probability float64  `json:"probability,omitempty"` // 0: always
	Times       uint64   `json:"times,omitempty"`       // jobs it hits at most; 0: any number
	Duration    Duration `json:"duration,omitempty"`    // of slow

	// Match is called in Submit, and once more before that for a job that Run
	// is given; it must not call the device.
	Match func(*backend.Job) bool `json:"-"`
}

// Kind is what goes wrong.
type Kind uint8

const (
	// None is the zero value and not a fault.
	None Kind = iota
	// Hang never ends and ignores Cancel; a reset of its context stops it, or of all.
	Hang
	// Slow waits for Duration before the work. Cancel ends the wait.
	Slow
	// ErrorCompletion does no work and completes as failed: deviceError.
	ErrorCompletion
	// LostCompletion does the work and says nothing.
	LostCompletion
	// DuplicateCompletion completes twice.
	DuplicateCompletion
	// WrongJobID does the work and completes a job that nobody submitted.
	WrongJobID
	// StrayDMA accesses memory beyond the job's spans. The IOMMU refuses, and
	// the job fails: deviceError.
	StrayDMA
	// DeviceGone takes the device off the bus for good.
	DeviceGone
	// WrongWritePointer completes, and moves the index of the completion ring
	// once around: all its old entries come again.
	WrongWritePointer
	// LateCompletion does the work and completes only after the next Reset,
	// just before the first job after it begins.
	LateCompletion
	// HangFunction never ends and ignores Cancel and a reset of its context; only Reset
	// stops it.
	HangFunction
	// HangForever is HangFunction, but Reset does not stop it either: it fails, and the
	// device has to be closed.
	HangForever
	numKinds
)

var names = [numKinds]string{"none", "hang", "slow", "errorCompletion", "lostCompletion", "duplicateCompletion",
	"wrongJobID", "strayDMA", "deviceGone", "wrongWritePointer", "lateCompletion", "hangFunction", "hangForever"}

// Kinds lists every kind of fault.
func Kinds() []Kind {
	kinds := make([]Kind, 0, numKinds-1)
	for k := Hang; k < numKinds; k++ {
		kinds = append(kinds, k)
	}
	return kinds
}

// String is the name in JSON.
func (k Kind) String() string {
	if k < numKinds {
		return names[k]
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	for i, name := range names[1:] {
		if name == string(text) {
			*k = Kind(i + 1)
			return nil
		}
	}
	return gpuerr.New(gpuerr.Invalid, "there is no fault of kind %.64q", text)
}

// Duration is a time.Duration that is "20ms" in JSON.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Fits reports whether the fault concerns a job, the ordinal-th of its device.
func (f *Fault) Fits(job *backend.Job, ordinal uint64) bool {
	switch {
	case f.Job != 0 && f.Job != ordinal,
		f.Op != "" && opNames[f.Op] != job.Op,
		f.Program != "" && !runs(job, f.Program),
		f.Match != nil && !f.Match(job):
		return false
	}
	return true
}

// runs reports whether a job is a launch of a program, or a list with one.
func runs(job *backend.Job, program string) bool {
	for i := range job.List {
		if runs(&job.List[i], program) {
			return true
		}
	}
	return job.Op == backend.OpLaunch && job.Program.Info().Name == program
}

const (
	maxScriptBytes = 64 << 10
	most           = 256
	maxDuration    = Duration(time.Hour)
)

var opNames = map[string]backend.Op{"launch": backend.OpLaunch, "copy": backend.OpCopy, "fill": backend.OpFill, "list": backend.OpList}

// ParseScript reads a script of at most 64 KiB. Unknown fields are refused: a
// fault that is misspelt must not pass for none.
func ParseScript(text []byte) (Script, error) {
	if len(text) > maxScriptBytes {
		return Script{}, gpuerr.New(gpuerr.Invalid, "the fault script has %d bytes; it may have %d", len(text), maxScriptBytes)
	}
	var s Script
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return Script{}, gpuerr.New(gpuerr.Invalid, "fault script: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return Script{}, gpuerr.New(gpuerr.Invalid, "fault script: something follows the object at byte %d", decoder.InputOffset())
	}
	if err := s.Validate(); err != nil {
		return Script{}, err
	}
	return s, nil
}

// Validate says what is wrong with a script.
func (s Script) Validate() error {
	if len(s.Faults) > most {
		return gpuerr.New(gpuerr.Invalid, "the fault script has %d faults; it may have %d", len(s.Faults), most)
	}
	for i := range s.Faults {
		if err := s.Faults[i].validate(); err != nil {
			return fmt.Errorf("fault %d: %w", i, err)
		}
	}
	return nil
}

func (f *Fault) validate() error {
	_, knownOp := opNames[f.Op]
	_, knownProgram := library.Digest(f.Program) // names of loaded ones are their makers' to choose
	switch {
	case f.Kind == None || f.Kind >= numKinds:
		return gpuerr.New(gpuerr.Invalid, "kind is missing or unknown")
	case f.Op != "" && !knownOp:
		return gpuerr.New(gpuerr.Invalid, "op %.64q is not launch, copy or fill", f.Op)
	case f.Program != "" && !knownProgram:
		return gpuerr.New(gpuerr.Invalid, "program %.64q is not one of the mock device", f.Program)
	case !(f.Probability >= 0 && f.Probability <= 1):
		return gpuerr.New(gpuerr.Invalid, "probability %v is not between 0 and 1", f.Probability)
	case f.Kind == Slow && f.Duration <= 0, f.Kind != Slow && f.Duration != 0:
		return gpuerr.New(gpuerr.Invalid, "duration %v: slow has one, and no other fault", time.Duration(f.Duration))
	case f.Duration > maxDuration:
		return gpuerr.New(gpuerr.Invalid, "duration %v is more than %v", time.Duration(f.Duration), time.Duration(maxDuration))
	}
	return nil
}
