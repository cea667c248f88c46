package devicetest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
)

// piece is memory that the device reaches.
type piece struct {
	host.Memory
	id     wire.MemoryID
	bytes  uint64
	client []byte       // as the client has it mapped; nil of local memory
	unmap  func() error // what the engine process has mapped
}

// Free frees the memory of the device, then the mapping.
func (p *piece) Free() error {
	if err := p.Memory.Free(); err != nil || p.unmap == nil {
		return err
	}
	return p.unmap()
}

var ids wire.MemoryID

func (k *kit) piece(m host.Memory, bytes uint64) *piece {
	ids++
	return &piece{Memory: m, id: ids, bytes: bytes}
}

// imported is client memory of so many bytes, in whole pages.
func (k *kit) imported(bytes int) *piece {
	k.Helper()
	m, err := shm.Create("devicetest", uint64(bytes))
	require.NoError(k, err)
	defer func() { require.NoError(k, m.Close()) }()
	engine, err := m.Map(0, m.Size(), true)
	require.NoError(k, err)
	client, err := m.Map(0, m.Size(), true)
	require.NoError(k, err)

	memory, err := k.d.Import(engine)
	require.NoError(k, err)
	p := k.piece(memory, m.Size())
	p.client = client
	p.unmap = func() error {
		if err := shm.Unmap(engine); err != nil {
			return err
		}
		return shm.Unmap(client)
	}
	k.owned(p)
	return p
}

// local is memory of the device's own.
func (k *kit) local(bytes uint64) *piece {
	k.Helper()
	memory, err := k.d.Alloc(bytes)
	require.NoError(k, err)
	return k.piece(memory, bytes)
}

// span is a part of a piece.
type span struct {
	p           *piece
	off, length uint64
}

func (p *piece) span(off, length int) span { return span{p, uint64(off), uint64(length)} }

// all is the whole of a piece.
func (p *piece) all() span { return span{p, 0, p.bytes} }

// bytes are the client's view of a span.
func (s span) bytes() []byte { return s.p.client[s.off : s.off+s.length] }

// bound are spans of new client memory with these contents, each where a binding may begin.
func (k *kit) bound(contents [][]byte) []span {
	k.Helper()
	align := max(int(k.about.OffsetAlign), 1)
	total, offs := 0, make([]int, len(contents))
	for i, c := range contents {
		offs[i] = total
		total += (len(c) + align) / align * align
	}

	p := k.imported(max(total, 1))
	spans := make([]span, len(contents))
	for i, c := range contents {
		spans[i] = p.span(offs[i], len(c))
		copy(spans[i].bytes(), c)
	}
	return spans
}

func bind(e *host.Entry, spans ...span) {
	for _, s := range spans {
		e.Spans = append(e.Spans, wire.Span{Memory: s.p.id, Off: s.off, Length: s.length})
		e.Memory = append(e.Memory, s.p.Memory)
	}
}

func copyOf(to, from span) host.Entry {
	e := host.Entry{Entry: &wire.Entry{Op: wire.OpCopy}}
	bind(&e, to, from)
	return e
}

func fillOf(to span, pattern uint32) host.Entry {
	e := host.Entry{Entry: &wire.Entry{Op: wire.OpFill, Pattern: pattern}}
	bind(&e, to)
	return e
}

func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func word(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n+8)
	for at := 0; at < n; at += 8 {
		binary.LittleEndian.PutUint64(b[at:], rng.Uint64())
	}
	return b[:n]
}
