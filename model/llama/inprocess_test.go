package llama

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/model"
	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/native"
)

// inProcess is a model that runs its launches as direct calls of the native kernels
// one after another in this goroutine, on memory of the process. The service is
// measured against it.
type inProcess struct {
	b       *Blueprint
	buffers [][]byte
	decode  []nativeCall

	tokens, rows, history []uint32
}

type nativeCall struct {
	body  *native.Body
	call  native.Call
	items uint64
	name  string
}

func newInProcess(t testing.TB, f *model.File, o Options) *inProcess {
	t.Helper()
	b, err := Draw(f, o, 0)
	require.NoError(t, err)
	p := &inProcess{b: b}
	for i, plan := range b.Buffers {
		p.buffers = append(p.buffers, make([]byte, plan.Bytes))
		require.NoError(t, b.Fill(i, p.buffers[i]))
	}

	for i := range p.view(b.io.table) {
		p.view(b.io.table)[i] = uint32(i) // one sequence
	}

	p.tokens, p.rows, p.history = p.view(b.io.tokens), p.view(b.io.rows), p.view(b.io.history)
	for _, part := range [][]Launch{b.Body(1), b.Head(1), b.Next(1)} {
		for i := range part {
			p.decode = append(p.decode, p.prepare(t, &part[i]))
		}
	}

	return p
}

func (p *inProcess) view(x piece) []uint32 {
	return client.View[uint32](p.buffers[x.buffer][x.off : x.off+x.bytes])
}

func (p *inProcess) prepare(t testing.TB, l *Launch) nativeCall {
	digest, _ := library.Digest(l.Program)
	body, ok := native.Lookup(digest)
	if !ok {
		t.Skipf("%s has no fast body on this machine", l.Program)
	}
	c := nativeCall{body: body, name: l.Program, call: native.Call{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Block: program.Dim3{X: 256, Y: 1, Z: 1}, Inline: l.Inline}}
	for _, b := range l.Bindings {
		c.call.Bindings = append(c.call.Bindings, p.buffers[b.Buffer][b.Off:b.Off+b.Bytes])
	}
	c.items, ok = body.Items(&c.call)
	require.True(t, ok, "%s", l.Program)
	return c
}

// next decodes a token.
func (p *inProcess) next() {
	for i := range p.decode {
		c := &p.decode[i]
		if !c.body.Run(&c.call, 0, c.items) {
			panic(c.name)
		}
	}
}

func (p *inProcess) begin(token int32) {
	p.tokens[0], p.rows[0], p.rows[1] = uint32(token), 0, 0
}
