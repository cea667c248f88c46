package local

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"capgpu/conformance"
	"capgpu/outcome"
)

// edu is two functions of QEMU's edu device: the first with the honest driver, the
// second with a hostile driver (qemu/guest/hostile-driver) that attacks on demand.
type edu struct{ functions []string }

func (edu) name() string { return "edu" }

func (edu) names() []string { return []string{"edu0", "edu1"} }

func (e edu) policy(s *Stack) map[string]any {
	return map[string]any{
		"functions": []any{
			map[string]any{"address": e.functions[0], "name": "edu0"},
			map[string]any{"address": e.functions[1], "name": "edu1", "driver": s.o.Bin + "/hostile-driver"},
		},
		"device": map[string]any{
			"memory":  "2MiB",
			"respawn": map[string]any{"budget": 1000, "firstDelay": "10ms", "maxDelay": "50ms"},
		},
		"sandbox": map[string]any{"require": "all"},
		"audit":   map[string]any{"requireKernel": true},
	}
}

func (edu) can() conformance.Abilities {
	return conformance.Abilities{
		Memory:  "deviceMemory",
		Devices: 2, Pace: 64, StrayDevice: 1,
		StrayOutcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.IOMMUFault}, StrayRecord: "iommu.fault",
	}
}

func (edu) cannot(k conformance.Kind) string {
	switch k {
	case conformance.Deaf:
		return "a transfer of edu cannot be stopped but always ends, within 100 ms; so does a factorial"
	case conformance.Trap:
		return "the one program of edu has no undefined acts besides its operands' place"
	}
	return ""
}

// eduStep is the number of bytes that edu moves in 200 ms: 100 ms to its board and
// 100 ms back.
const eduStep = 2048

// tooLarge is an operand above the unit's maximum (edu.MaxOperand).
const tooLarge = 1 << 21

func (edu) work(ctx context.Context, s conformance.Session, k conformance.Kind, deadline time.Duration) (w conformance.Work, err error) {
	buffer := func(bytes uint64) conformance.Buffer {
		var b conformance.Buffer
		if err == nil {
			b, err = s.Buffer(ctx, bytes)
		}
		return b
	}

	copied := func(bytes uint64) {
		src, dst := buffer(bytes), buffer(bytes)
		w.Commands = []conformance.Command{{Op: conformance.Copy, Dst: dst, Src: src, Bytes: bytes, Deadline: deadline}}
		w.Writes = dst
		if err == nil { // zeros on zeros would not show
			text := make([]byte, bytes)
			for i := range text {
				text[i] = byte(i%251 + 1)
			}
			err = src.Write(ctx, 0, text)
		}
	}

	switch k {
	case conformance.Normal:
		return factorials(ctx, s, deadline, 3, 5, 10, 12)

	case conformance.Slow:
		copied(eduStep)
		w.Want = outcome.Success

	case conformance.Fault:
		w, err = factorials(ctx, s, deadline, tooLarge)
		w.Want, w.Check = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}, nil

	case conformance.Hang: // it makes progress, but does not end before any deadline
		copied(64 * eduStep)
		w.Want = outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}

	case conformance.Stray:
		b := buffer(2 * 4096) // the order, and where the driver puts its loot
		if err != nil {
			return w, err
		}
		p, err := s.Program(ctx, "attack")
		if err != nil {
			return w, err
		}
		if err := b.Write(ctx, 0, []byte("dma-write 0xf000000")); err != nil {
			return w, err
		}
		one := conformance.Command{Op: conformance.Launch, Program: p, Bindings: []conformance.Binding{{Buffer: b}}, Deadline: deadline}
		one.Grid.X, one.Grid.Y, one.Grid.Z = 1, 1, 1
		w.Commands, w.Writes, w.Want = []conformance.Command{one}, b, edu{}.can().StrayOutcome
	}

	return w, err
}

// factorials makes the device's unit compute some.
func factorials(ctx context.Context, s conformance.Session, deadline time.Duration, operands ...uint32) (w conformance.Work, err error) {
	p, err := s.Program(ctx, "edu.factorial")
	if err != nil {
		return w, err
	}

	in, err := s.Buffer(ctx, uint64(4*len(operands)))
	if err != nil {
		return w, err
	}

	out, err := s.Buffer(ctx, uint64(4*len(operands)))
	if err != nil {
		return w, err
	}

	text := make([]byte, 4*len(operands))
	for i, n := range operands {
		binary.LittleEndian.PutUint32(text[4*i:], n)
	}

	if err := in.Write(ctx, 0, text); err != nil {
		return w, err
	}

	w.Commands = []conformance.Command{{Op: conformance.Launch, Program: p, Bindings: []conformance.Binding{{Buffer: in}, {Buffer: out}}, Deadline: deadline}}
	w.Writes, w.Want = out, outcome.Success
	w.Check = func(ctx context.Context) error {
		if err := out.Read(ctx, 0, text); err != nil {
			return err
		}
		for i, n := range operands {
			want := uint32(1)
			for f := uint32(2); f <= n; f++ {
				want *= f
			}
			if got := binary.LittleEndian.Uint32(text[4*i:]); got != want {
				return fmt.Errorf("%d! is %d, says the device; it is %d", n, got, want)
			}
		}
		return nil
	}

	return w, nil
}
