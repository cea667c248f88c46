package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"capgpu/client"
	"capgpu/conformance"
	"capgpu/outcome"
)

// faultScript makes some programs of the mock's library misbehave. The rest of the
// device is as usual.
const faultScript = `{"faults": [
  {"kind": "hang", "program": "fill_u32"},
  {"kind": "errorCompletion", "program": "saxpy_f32"},
  {"kind": "strayDMA", "program": "scan_u32"},
  {"kind": "slow", "program": "scan_f32", "duration": "100ms"}
]}
`

// mock is the mock device, with its script.
type mock struct{ discrete bool }

func (m mock) name() string {
	if m.discrete {
		return "discrete mock"
	}
	return "mock"
}

func (mock) names() []string { return []string{"mock0"} }

func (m mock) policy(*Stack) map[string]any {
	return map[string]any{"device": map[string]any{
		"memory": "8MiB", "faults": "faults.json", "discrete": m.discrete,
		"respawn": map[string]any{"budget": 1000, "firstDelay": "1ms", "maxDelay": "10ms"},
	}}
}

func (m mock) can() conformance.Abilities {
	memory := "deviceMemory"
	if m.discrete {
		memory = "hostMemory"
	}
	return conformance.Abilities{
		Memory: memory, Devices: 1, Pace: 1,
		StrayOutcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError},
	}
}

func (mock) cannot(conformance.Kind) string { return "" }

const mockBytes = 4096

func (m mock) work(ctx context.Context, s conformance.Session, k conformance.Kind, deadline time.Duration) (w conformance.Work, err error) {
	launch := func(program string, buffers int, inline []byte) (conformance.Work, error) {
		p, err := s.Program(ctx, program)
		if err != nil {
			return w, err
		}
		c := conformance.Command{Op: conformance.Launch, Program: p, Inline: inline, Deadline: deadline}
		for range buffers {
			b, err := s.Buffer(ctx, mockBytes)
			if err != nil {
				return w, err
			}
			c.Bindings = append(c.Bindings, conformance.Binding{Buffer: b})
			w.Writes = b
		}
		w.Commands = []conformance.Command{c}
		return w, nil
	}

	switch k {
	case conformance.Normal:
		return m.copy(ctx, s, deadline)

	case conformance.Slow:
		w, err = launch("scan_f32", 2, nil)
		w.Want = outcome.Success

	case conformance.Fault:
		w, err = launch("saxpy_f32", 2, make([]byte, 4))
		w.Want = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}

	case conformance.Hang:
		w, err = launch("spin", 0, nil)
		w.Want = outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}

	case conformance.Deaf:
		w, err = launch("fill_u32", 1, make([]byte, 4))
		w.Want = outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}

	case conformance.Trap:
		w, err = launch("trap", 1, nil)
		w.Want = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause}

	case conformance.Stray:
		w, err = launch("scan_u32", 2, nil)
		w.Want = m.can().StrayOutcome
	}

	return w, err
}

// copy copies bytes that are different each time; on a discrete device by way of its memory.
func (m mock) copy(ctx context.Context, s conformance.Session, deadline time.Duration) (w conformance.Work, err error) {
	src, err := s.Buffer(ctx, mockBytes)
	if err != nil {
		return w, err
	}

	dst, err := s.Buffer(ctx, mockBytes)
	if err != nil {
		return w, err
	}

	text := make([]byte, mockBytes)
	for i := 0; i < len(text); i += 8 {
		binary.LittleEndian.PutUint64(text[i:], src.ID()*0x9e3779b97f4a7c15+uint64(i)|1)
	}

	if err := src.Write(ctx, 0, text); err != nil {
		return w, err
	}

	w.Commands = []conformance.Command{{Op: conformance.Copy, Dst: dst, Src: src, Bytes: mockBytes, Deadline: deadline}}
	if m.discrete {
		local, err := s.BufferOf(ctx, mockBytes, uint32(client.Device))
		if err != nil {
			return w, err
		}
		w.Commands = []conformance.Command{
			{Op: conformance.Copy, Dst: local, Src: src, Bytes: mockBytes, Deadline: deadline},
			{Op: conformance.Copy, Dst: dst, Src: local, Bytes: mockBytes, Deadline: deadline},
		}
	}
	w.Want, w.Writes = outcome.Success, dst
	w.Check = func(ctx context.Context) error {
		got := make([]byte, len(text))
		if err := dst.Read(ctx, 0, got); err != nil {
			return err
		}
		if !bytes.Equal(got, text) {
			return fmt.Errorf("the copy ended ok, and its bytes are not there")
		}
		return nil
	}

	return w, nil
}
