package attack

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Attack is one way to misbehave.
type Attack struct {
	Class int // 1 to 10, of the fault classes of a client
	Name  string
	// steps is the number of steps after which the attacker may be killed; 0: it
	// ends by itself.
	steps int
	// stops: it stops itself, and is then killed.
	stops bool
	run   func(ctx context.Context, a *attacker) error
}

// All are the attacks, by class.
var All = []Attack{
	{1, "killed at each step of a session", sessionSteps, false, killedInSession},
	{1, "killed at each step of a Cap'n Proto connection", gateSteps, false, killedBehindGate},
	{2, "stopped with a ring half written", 0, true, halfWritten},
	{3, "tail jumps, goes back, wraps around", 0, false, tails},
	{3, "arguments lie where none can be, or are none", 0, false, arguments},
	{4, "entries change while they are read", 0, false, changing},
	{5, "completions are never taken", 0, false, neverDrained},
	{6, "memory is truncated, punched out, sealed", 0, false, memoryTaken},
	{7, "handles are stale, forged, wrapped around", 0, false, handles},
	{8, "a flood of capabilities", 0, false, flood},
	{8, "the audit logs are washed", 0, false, wash},
	{9, "garbage on each socket", 0, false, garbage},
	{9, "half-open connections", 0, false, halfOpen},
	{9, "a storm of connections", 0, false, connectStorm},
	{9, "idle connections on all seats", 0, false, idleSeats},
	{9, "a flood of descriptors", 0, false, descriptors},
	{9, "gone before the answer that brings descriptors", 0, false, hangUp},
	{9, "gone before the session that it asked for", 0, false, hangUpBroker},
	{9, "crowds at a model server", 0, false, crowds},
	{9, takenAway, 0, false, heldOn},
	{10, "pointer bombs", 0, false, bombs},
	{10, "random conversations", 0, false, conversations},
}

// attacker is the attacking process.
type attacker struct {
	socket, capnp string // of its tenant
	bin           string // folder of the built commands
	random        *rand.Rand
	step          int // the step at which it is killed
	at            int // the current step
	tally         Tally
}

// Tally is the result of attempts.
type Tally struct {
	Attempts int            `json:"attempts"`
	Answers  map[string]int `json:"answers"` // by error code, outcome, or errno
	Err      string         `json:"err,omitempty"`
}

func (t *Tally) add(o Tally) {
	t.Attempts += o.Attempts
	if t.Answers == nil {
		t.Answers = map[string]int{}
	}
	for what, n := range o.Answers {
		t.Answers[what] += n
	}
}

// answered counts an attempt and its answer.
func (a *attacker) answered(err error) {
	a.tally.Attempts++
	a.tally.Answers[answerOf(err)]++
}

// ended counts an attempt that ran.
func (a *attacker) ended(code gpuerr.Code, how outcome.Outcome) {
	a.tally.Attempts++
	if code != gpuerr.None {
		a.tally.Answers[code.String()]++
		return
	}
	a.tally.Answers[how.Kind.String()]++
}

// untyped is the forbidden answer.
const untyped = "no typed error"

func answerOf(err error) string {
	var errno unix.Errno
	var typed *gpuerr.Error
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return "not waited for"
	case errors.As(err, &typed):
		return typed.Code.String()
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return untyped + ": " + err.Error()
}

// reached is called between two steps of a conversation: here the attacker is
// killed, if it is to be killed at this step.
func (a *attacker) reached() {
	if a.at++; a.at == a.step {
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
		select {} // it comes at once
	}
}

// longest bounds one call; a victim of our attack would wait no longer.
const longest = 10 * time.Second
