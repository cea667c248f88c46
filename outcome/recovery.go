package outcome

import "fmt"

// RecoveryStep is a step by which the service gets a device back from work that
// does not end; the smallest comes first. The numbers are those of RecoveryStep in
// schema/capos.capnp and travel unchanged in control messages.
//
//	none ─► cancelling ─► queueReset ─► functionReset ─► respawn ─► wedged
//
// A step that succeeds ends the incident. queueReset is left out where the backend
// cannot end the work of one session alone.
type RecoveryStep uint8

const (
	RecoveryNone  RecoveryStep = iota // nothing is wrong
	Cancelling                        // the device was asked to stop one piece of work
	QueueReset                        // the work of one session is being ended
	FunctionReset                     // the whole function is being reset
	Respawn                           // its driver is being replaced
	WedgedStep                        // given up; an operator has to act
	NumRecoverySteps
)

var recoveryNames = [NumRecoverySteps]string{"none", "cancelling", "queueReset", "functionReset", "respawn", "wedged"}

// String is the name in the schema.
func (s RecoveryStep) String() string {
	if s < NumRecoverySteps {
		return recoveryNames[s]
	}
	return fmt.Sprintf("unknown(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s RecoveryStep) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
