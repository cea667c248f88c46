// Package control is what an engine process and the device-manager say to each other, on a
// SOCK_SEQPACKET socket of their own: one JSON object in each datagram, no descriptors.
//
//	engine ──{"ready":{…}} | {"failed":"why"}──► manager   once, when the self-test has ended
//	engine ◄──────────{"test":n}──────────────── manager   while the engine has no group
//	engine ──{"tested":n} | {"failed":"why"}───► manager   the self-test was run again
//
// A test asks the device for a known answer: after an engine was killed, from one that waits.
// Once an engine has its group, which it knows by the first order on its link, it answers no
// test. An engine that has failed ends.
//
// The manager does not trust an engine: it bounds what it reads (Parse does), and how long it
// waits. The strings are the vendor library's words; sanitize them before they are shown.
package control

import (
	"encoding/json"
	"errors"
	"fmt"

	"capgpu/gpu/backend/engine/wire"
)

// Bounds of a datagram.
const (
	MaxBytes     = 16 << 10
	MaxTextBytes = 1 << 10
)

// FromEngine is an engine's word; one field is set.
type FromEngine struct {
	Ready  *wire.Device `json:"ready,omitempty"`
	Failed string       `json:"failed,omitempty"` // why; MaxTextBytes at most
	Tested *uint64      `json:"tested,omitempty"`
}

// ToEngine is the manager's.
type ToEngine struct {
	Test *uint64 `json:"test,omitempty"`
}

var errOne = errors.New("an engine's message has not just one of ready, failed and tested")

// ParseFromEngine reads a datagram of an engine.
func ParseFromEngine(b []byte) (m FromEngine, err error) {
	if err := parse(b, &m); err != nil {
		return FromEngine{}, err
	}

	count := 0
	for _, set := range [...]bool{m.Ready != nil, m.Failed != "", m.Tested != nil} {
		if set {
			count++
		}
	}
	if count != 1 {
		return FromEngine{}, errOne
	}
	if len(m.Failed) > MaxTextBytes {
		return FromEngine{}, fmt.Errorf("an engine's reason has %d bytes, more than %d", len(m.Failed), MaxTextBytes)
	}
	if m.Ready != nil {
		if err := m.Ready.Check(); err != nil {
			return FromEngine{}, err
		}
	}
	return m, nil
}

// ParseToEngine reads a datagram of the manager.
func ParseToEngine(b []byte) (m ToEngine, err error) {
	if err := parse(b, &m); err != nil {
		return ToEngine{}, err
	}
	if m.Test == nil {
		return ToEngine{}, errors.New("the manager's message has no test")
	}
	return m, nil
}

func parse(b []byte, to any) error {
	if len(b) > MaxBytes {
		return fmt.Errorf("a control message has %d bytes, more than %d", len(b), MaxBytes)
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("parse a control message: %w", err)
	}
	return nil
}

// Bytes is the datagram. A reason that is too long is cut.
func (m FromEngine) Bytes() []byte {
	m.Failed = m.Failed[:min(len(m.Failed), MaxTextBytes/6)] // JSON may make six bytes of one
	return encode(m)
}

// Bytes is the datagram.
func (m ToEngine) Bytes() []byte { return encode(m) }

func encode(m any) []byte {
	b, err := json.Marshal(m)
	if err != nil { // numbers and strings always can be
		panic(fmt.Sprintf("engine control: %v", err))
	}
	return b
}
