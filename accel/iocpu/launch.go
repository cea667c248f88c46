package iocpu

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"capgpu/accel"
	"capgpu/client"
	"capgpu/gpuerr"
)

// part is the launch of one PE.
type part struct {
	Place
	pe     *pe
	bytes  uint64 // of its shards
	launch accel.Launch
	event  accel.Event[accel.Device]
	err    error
}

// launch runs a kernel on the PEs of the first tensor's shards. All is checked before anything runs.
// failed is how the PEs failed, if some did.
func (e *Endpoint) launch(ctx context.Context, target uint64, l *Launch) (hops []Hop, ran []Ran, failed, err error) {
	parts, err := e.parts(target, l)
	if err != nil {
		return nil, nil, nil, err
	}
	var code []byte
	if l.Deployed {
		p, err := e.at(target, l.Code)
		if err != nil {
			return nil, nil, nil, err
		}
		s, err := e.span(p, "kernel_ref.deploy_pa", "AUTO", l.CodePA, l.CodeBytes)
		if err != nil {
			return nil, nil, nil, err
		}
		mem, err := s.bytes()
		if err != nil {
			return nil, nil, nil, err
		}
		code = slices.Clone(mem) // kernels write the memory that it lies in
	}
	for _, p := range parts {
		if err := p.pe.gpu.Err(); err != nil {
			return nil, nil, nil, gpuerr.New(gpuerr.Poisoned, "cube %d pe %d: %v", p.Cube, p.PE, err)
		}
		if p.launch.Kernel, err = p.pe.kernel(ctx, l.Kernel, code); err != nil {
			return nil, nil, nil, err
		}
		values, err := inline(p.launch.Kernel.Info().Inline, l.Scalars)
		if err != nil {
			return nil, nil, nil, err
		}
		p.launch.Args = append(p.launch.Args, values...)
		p.launch.Grid = l.Grid
	}

	var begun []*part
	for _, p := range parts {
		if p.event, err = p.pe.gpu.Default().Launch(p.launch); err != nil {
			if len(begun) == 0 {
				return nil, nil, nil, err // the same for every PE
			}
			p.err = err
		}
		begun = append(begun, p)
		if !l.CollectAll {
			if p.wait(ctx); p.err != nil {
				break
			}
		}
	}
	var pes []Place
	var bytes []uint64
	var messages []string
	for _, p := range begun {
		p.wait(ctx)
		pes, bytes = append(pes, p.Place), append(bytes, p.bytes)
		if p.err != nil {
			messages = append(messages, fmt.Sprintf("cube %d pe %d: %v", p.Cube, p.PE, p.err))
			failed = cmp.Or(failed, p.err)
		}
	}
	if failed != nil {
		failed = &several{failed, strings.Join(messages, "; ")}
	}
	hops, ran = e.topology.Costs.launch(pes, bytes, l.CodeBytes)
	for i, p := range begun {
		ran[i].OK = p.err == nil
	}
	return hops, ran, failed, nil
}

// several is how more than one PE failed, with the code of the first.
type several struct {
	error
	all string
}

func (s *several) Error() string { return s.all }
func (s *several) Unwrap() error { return s.error }

// wait waits for the part, once.
func (p *part) wait(ctx context.Context) {
	if p.event.ID() == 0 {
		return
	}
	p.err = p.event.Synchronize(ctx)
	p.event = accel.Event[accel.Device]{}
}

// parts are the launches of the PEs, in ascending order of cube and PE.
func (e *Endpoint) parts(target uint64, l *Launch) ([]*part, error) {
	var parts []*part
	for _, s := range l.Tensors[0] {
		p, err := e.at(target, s.Place)
		if err != nil {
			return nil, err
		}
		parts = append(parts, &part{Place: s.Place, pe: p})
	}
	order := func(p *part, to Place) int {
		return cmp.Or(cmp.Compare(p.Cube, to.Cube), cmp.Compare(p.PE, to.PE))
	}
	slices.SortFunc(parts, func(a, b *part) int { return order(a, b.Place) })

	for i, shards := range l.Tensors {
		seen := map[*part]bool{}
		for _, s := range shards {
			if _, err := e.at(target, s.Place); err != nil {
				return nil, err
			}
			at, there := slices.BinarySearchFunc(parts, s.Place, order)
			if !there || seen[parts[at]] {
				return nil, gpuerr.New(gpuerr.Invalid, "%spe: tensor %d has exactly one shard on each PE of the first one", s.Field, i)
			}
			p := parts[at]
			seen[p] = true
			m, err := e.span(p.pe, s.Field+"pa", "AUTO", s.PA, s.Bytes)
			if err != nil {
				return nil, err
			}
			p.bytes += s.Bytes
			p.launch.Args = append(p.launch.Args, accel.RawRange(m.buffer, m.off, m.n))
		}
		if len(seen) != len(parts) {
			return nil, gpuerr.New(gpuerr.Invalid, "args: tensor %d has exactly one shard on each PE of the first one", i)
		}
	}
	return parts, nil
}

// kernel opens a kernel of the library, or loads what was deployed, once per content.
func (p *pe) kernel(ctx context.Context, name string, code []byte) (*accel.Kernel, error) {
	key := name
	if code != nil {
		digest := sha256.Sum256(code)
		key = "\x00" + string(digest[:])
	}
	if k := p.kernels[key]; k != nil {
		return k, nil
	}
	var k *accel.Kernel
	var err error
	if code != nil {
		k, err = p.gpu.Load(ctx, code)
	} else {
		k, err = p.gpu.Kernel(ctx, name)
	}
	if err == nil {
		p.kernels[key] = k
	}
	return k, err
}

// inline are the scalars as the inline fields of a kernel: fp16 and fp32 as f32, bool and i32 as
// 32-bit integers, i64 as 64-bit ones.
func inline(fields []client.FieldInfo, scalars []Scalar) ([]accel.Argument, error) {
	if len(fields) != len(scalars) {
		return nil, gpuerr.New(gpuerr.Invalid, "args: %d scalars; the kernel has %d inline fields", len(scalars), len(fields))
	}
	var args []accel.Argument
	for i, s := range scalars {
		takes := map[string][]string{"fp16": {"f32"}, "fp32": {"f32"}, "bool": {"i32", "u32"}, "i32": {"i32", "u32"}, "i64": {"i64", "u64"}}[s.Type]
		if !slices.Contains(takes, fields[i].Type) || s.Negative && fields[i].Type[0] == 'u' {
			return nil, gpuerr.New(gpuerr.Invalid, "%s: the kernel's field %s is of type %s", s.Field, fields[i].Name, fields[i].Type)
		}
		word := binary.LittleEndian.AppendUint64(nil, s.Bits)
		if s.Type != "i64" {
			word = word[:4]
		}
		args = append(args, accel.RawValue(word))
	}
	return args, nil
}

// codeOf is the name of docs/errors.md for what was refused, or the outcome's for work that ran.
func codeOf(err error) string {
	var how *client.OutcomeError
	var ours *accel.Error
	var known *gpuerr.Error
	switch {
	case errors.As(err, &how):
		return how.Outcome.Kind.String()
	case errors.As(err, &known):
		return known.Code.String()
	case errors.As(err, &ours) && ours.Code == accel.EnqueueFailed:
		return gpuerr.Invalid.String() // the arguments are not the kernel's
	}
	return gpuerr.CodeOf(err).String()
}
