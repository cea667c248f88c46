package gate

import (
	"capgpu/outcome"
	"capgpu/schema"
)

// putOutcome fills in an outcome. The numbers are the same on every wire.
// refusal is why the work was refused, if it was.
func putOutcome(alloc func() (schema.Outcome, error), o outcome.Outcome, refusal error) error {
	out, err := alloc()
	if err != nil {
		return err
	}
	out.SetKind(schema.OutcomeKind(o.Kind))
	out.SetCause(schema.OutcomeCause(o.Cause))
	message := o.String()
	if refusal != nil {
		message = refusal.Error()
	}
	if err := out.SetMessage_(message); err != nil {
		return err
	}
	if o.Cause != outcome.TrapCause {
		return nil
	}
	trap, err := out.NewTrap()
	if err != nil {
		return err
	}
	trap.SetKind(schema.TrapKind(o.Trap.Kind))
	trap.SetBinding(uint32(o.Trap.Binding))
	trap.SetOffset(o.Trap.Offset)
	trap.SetWorkgroup(o.Trap.Workgroup)
	trap.SetLane(o.Trap.Lane)
	return nil
}
