package gate

import (
	"capgpu/outcome"
	"capgpu/schema"
)

// putOutcome fills in an outcome. The numbers are the same in every protocol.
// refusal is the reason if the work was refused.
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

	putTrap(trap, o.Trap)
	return nil
}

func putTrap(out schema.Trap, t outcome.Trap) {
	out.SetKind(schema.TrapKind(t.Kind))
	out.SetBinding(uint32(t.Binding))
	out.SetOffset(t.Offset)
	out.SetWorkgroup(t.Workgroup)
	out.SetLane(t.Lane)
}
