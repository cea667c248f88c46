package oracle

import (
	"crypto/sha256"
	"errors"

	"capgpu/program"
	"capgpu/program/native"
)

// ErrNotMine means that an engine does not handle a launch.
var ErrNotMine = errors.New("not a launch for this engine")

// Native is the table of fast bodies.
type Native struct{}

// Name is "native".
func (Native) Name() string { return "native" }

// Close does nothing.
func (Native) Close() {}

// Run implements Engine. A program without a body, and a launch that its body
// refuses, are ErrNotMine.
func (Native) Run(l *Launch) ([][]byte, error) {
	bundle, err := program.Encode(l.SPIRV, l.Manifest)
	if err != nil {
		return nil, err
	}

	body, ok := native.Lookup(sha256.Sum256(bundle))
	if !ok {
		return nil, ErrNotMine
	}

	c := native.Call{Grid: l.Grid, Block: l.Block, Inline: l.Inline}
	for _, b := range l.Bindings {
		c.Bindings = append(c.Bindings, append([]byte{}, b...))
	}

	items, ok := body.Items(&c)
	if !ok {
		return nil, ErrNotMine
	}

	for lo, grain := uint64(0), max(body.Grain(&c), 1); lo < items; lo += grain {
		if !body.Run(&c, lo, min(lo+grain, items)) {
			return nil, ErrNotMine
		}
	}

	return c.Bindings, nil
}
