package mock

import "capgpu/gpu/backend/mock/faults"

// The faults of a device, by their names in package faults.
type (
	Script    = faults.Script
	Fault     = faults.Fault
	FaultKind = faults.Kind
	Duration  = faults.Duration
)

const (
	NoFault                  = faults.None
	FaultHang                = faults.Hang
	FaultSlow                = faults.Slow
	FaultErrorCompletion     = faults.ErrorCompletion
	FaultLostCompletion      = faults.LostCompletion
	FaultDuplicateCompletion = faults.DuplicateCompletion
	FaultWrongJobID          = faults.WrongJobID
	FaultStrayDMA            = faults.StrayDMA
	FaultDeviceGone          = faults.DeviceGone
	FaultWrongWritePointer   = faults.WrongWritePointer
	FaultLateCompletion      = faults.LateCompletion
	FaultHangFunction        = faults.HangFunction
	FaultHangForever         = faults.HangForever
)

// FaultKinds lists every kind of fault.
func FaultKinds() []FaultKind { return faults.Kinds() }
