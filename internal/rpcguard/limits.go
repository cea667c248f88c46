package rpcguard

import "time"

// Limits bound what one peer can make this process hold. A zero field takes the
// value of DefaultLimits.
type Limits struct {
	MaxMessageBytes uint32        // of a message in either direction
	MaxCalls        int           // calls not yet returned; then back-pressure, then E_BUSY
	MaxCallBytes    int64         // bytes of the messages of such calls; then the same
	MaxQuestions    int           // questions without a Finish; then Abort
	MaxExports      int           // capabilities held by the peer; then E_BUSY
	MaxUnsentBytes  int64         // bytes of results not yet written; then the peer is not read
	MaxCapsPerCall  int           // entries of one message's capability table; then Abort
	WriteTimeout    time.Duration // for one write; then the connection is closed
}

// DefaultLimits are those of an ordinary client. Questions are many because a Go
// client sends the Finish of a call a quarter of a second after its return.
func DefaultLimits() Limits {
	return Limits{
		MaxMessageBytes: 1<<20 + 64<<10, // a program bundle and the rest of its message
		MaxCalls:        256,
		MaxCallBytes:    8 << 20,
		MaxQuestions:    20_000,
		MaxExports:      4096,
		MaxUnsentBytes:  4 << 20,
		MaxCapsPerCall:  256,
		WriteTimeout:    5 * time.Second,
	}
}

// StrictLimits are those of the grant link: its peer is one driver that makes few and small
// calls.
func StrictLimits() Limits {
	return Limits{
		MaxMessageBytes: 64 << 10,
		MaxCalls:        32,
		MaxCallBytes:    256 << 10,
		MaxQuestions:    2048,
		MaxExports:      1024,
		MaxUnsentBytes:  256 << 10,
		MaxCapsPerCall:  8,
		WriteTimeout:    5 * time.Second,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	orElse(&l.MaxMessageBytes, d.MaxMessageBytes)
	orElse(&l.MaxCalls, d.MaxCalls)
	orElse(&l.MaxCallBytes, d.MaxCallBytes)
	orElse(&l.MaxQuestions, d.MaxQuestions)
	orElse(&l.MaxExports, d.MaxExports)
	orElse(&l.MaxUnsentBytes, d.MaxUnsentBytes)
	orElse(&l.MaxCapsPerCall, d.MaxCapsPerCall)
	orElse(&l.WriteTimeout, d.WriteTimeout)
	return l
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
