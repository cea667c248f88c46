package difftest

import (
	"math/rand/v2"

	"capgpu/gpu/gputest/refmodel"
)

// object is one that the session has, as its client knows it.
type object[T any] struct {
	handle uint64
	model  *T
}

// generator makes submissions of what a session has: good ones, of which it then changes
// a little here and there.
type generator struct {
	r        *rand.Rand
	buffers  []object[refmodel.Buffer]
	programs []object[refmodel.Program]
	fences   []object[refmodel.Fence]
	lists    []object[refmodel.List]
	bad      []uint64 // closed, or another session's

	rare int      // one of so many entries is changed
	args []uint64 // the arena, as it is to be
	used int      // words of it, in this batch
	tune tune
}

// n is a number below n.
func (g *generator) n(n int) int { return int(g.r.Uint64() >> 32 * uint64(n) >> 32) }

func pick[T any](g *generator, from []object[T]) (o object[T], ok bool) {
	if len(from) == 0 {
		return o, false
	}
	return from[g.n(len(from))], true
}

// entry makes the next one.
func (g *generator) entry(e *refmodel.Entry) {
	*e = refmodel.Entry{}
	switch k := g.n(100); {
	case k < 30:
		g.launch(e)
	case k < 50:
		g.copy(e)
	case k < 74:
		g.fill(e)
	case k < 78: // a no-operation is all zero
	case k < 87:
		g.signal(e)
	case k < 90:
		g.wait(e)
	case k < 98:
		g.replay(e)
	default:
		g.noise(e)
	}
	e[1] = g.r.Uint64()
	if e[0]&0xff >= 1 && e[0]&0xff <= 3 || e[0]&0xff == 6 {
		if g.n(4) == 0 {
			e[0] |= uint64(g.deadline()) << 32
		}
	}
	if g.n(g.rare) == 0 {
		for range 1 + g.n(2) {
			g.spoil(e)
		}
	}
}

func (g *generator) deadline() uint32 {
	if g.n(4) == 0 {
		return ^uint32(0)
	}
	return uint32(1000000 + g.n(1000000))
}

// buffer picks one, and a part of it that is good.
func (g *generator) part(align uint64) (handle, off, n uint64) {
	b, ok := pick(g, g.buffers)
	if !ok {
		return g.handle(), 0, align
	}
	off = g.r.Uint64() % b.model.Bytes &^ (align - 1)
	n = (1 + g.r.Uint64()%(b.model.Bytes-off) + align - 1) &^ (align - 1)
	if g.n(4) == 0 {
		n = b.model.Bytes - off
	}
	return b.handle, off, n
}

func (g *generator) copy(e *refmodel.Entry) {
	dst, dstOff, n := g.part(1)
	src, srcOff, m := g.part(1)
	*e = refmodel.Entry{refmodel.OpCopy, 0, dst, dstOff, src, srcOff, min(n, m)}
}

func (g *generator) fill(e *refmodel.Entry) {
	b, off, n := g.part(4)
	*e = refmodel.Entry{refmodel.OpFill, 0, b, off, g.r.Uint64() >> 32, 0, n}
}

func (g *generator) fence() (handle, last uint64) {
	f, ok := pick(g, g.fences)
	if !ok {
		return g.handle(), 0
	}
	return f.handle, f.model.Last()
}

func (g *generator) signal(e *refmodel.Entry) {
	f, last := g.fence()
	*e = refmodel.Entry{refmodel.OpSignal, 0, f, last + 1 + uint64(g.n(256))}
}

func (g *generator) wait(e *refmodel.Entry) {
	f, last := g.fence()
	value := last - min(last, uint64(g.n(4)))
	if g.n(2) == 0 {
		value = 0 // which was always reached
	}
	*e = refmodel.Entry{refmodel.OpWait | uint64(g.n(2))<<8, 0, f, value}
}

// room is for so many words of arguments.
func (g *generator) room(words int) (at int, ok bool) {
	if g.used+words > len(g.args) {
		return 0, false
	}
	at = g.used
	g.used += words
	return at, true
}

func (g *generator) launch(e *refmodel.Entry) {
	p, ok := pick(g, g.programs)
	if !ok {
		p = object[refmodel.Program]{g.handle(), &programs[g.n(len(programs))].model}
	}
	bindings, inline := len(p.model.Access), uint64(p.model.InlineBytes)
	if g.n(64) == 0 { // more than the program takes, or the device
		bindings, inline = bindings+g.n(9), inline+uint64(g.n(41))
	}
	at, ok := g.room(4*bindings + int(inline+7)/8)
	if !ok {
		g.fill(e)
		return
	}
	words := g.args[at:g.used]
	for i := range bindings {
		access := refmodel.Access(0)
		if i < len(p.model.Access) {
			access = p.model.Access[i]
		}
		w := words[4*i : 4*i+4]
		align := uint64(limits.OffsetAlign)
		if g.n(16) == 0 {
			align = 1
		}
		w[0], w[1], w[2] = g.part(align)
		for try := 0; try < 3 && !g.allows(w[0], access); try++ {
			w[0], w[1], w[2] = g.part(align)
		}
		if w[3] = 0; g.n(4) == 0 {
			w[2] = 0
		}
	}
	for i := 4 * bindings; i < len(words); i++ {
		words[i] = g.r.Uint64() // beyond the last byte as well: nobody is to see that
	}
	*e = refmodel.Entry{refmodel.OpLaunch | uint64(bindings)<<16, 0, p.handle, 0, 0, inline << 16, uint64(8*at) | (32*uint64(bindings)+inline)<<32}
	g.dims(e, p.model)
	if d := p.model.DynamicElementBytes; d != 0 && g.n(2) == 0 {
		e[5] |= uint64(d) * uint64(g.n(int((limits.MaxSharedBytes-p.model.SharedBytes)/d)+2)) << 32
	}
}

func (g *generator) allows(handle uint64, access refmodel.Access) bool {
	for _, b := range g.buffers {
		if b.handle == handle {
			return (access&1 == 0 || b.model.CanRead) && (access&2 == 0 || b.model.CanWrite)
		}
	}
	return false
}

// dims gives a launch a grid, and perhaps a block.
func (g *generator) dims(e *refmodel.Entry, p *refmodel.Program) {
	k := g.n(4)
	if k == 0 {
		return // the natural ones
	}
	dim := func(most int) uint64 {
		if g.n(16) == 0 {
			return uint64(most + g.n(3) - 1)
		}
		return uint64(1 + g.n(most))
	}
	grid := int(limits.MaxGridDim)
	e[3] = dim(grid) | dim(grid)<<32
	e[4] = dim(grid)
	switch {
	case k == 1: // the program's block
	case !p.BlockFree:
		e[4] |= uint64(p.Block[0])<<32 | uint64(p.Block[1])<<48
		e[5] |= uint64(p.Block[2])
	default:
		e[4] |= dim(int(limits.MaxBlockDim))<<32 | dim(2)<<48
		e[5] |= dim(2)
	}
}

func (g *generator) replay(e *refmodel.Entry) {
	l, ok := pick(g, g.lists)
	if !ok {
		*e = refmodel.Entry{refmodel.OpReplay, 0, g.handle()}
		return
	}
	patches := 0
	if g.n(2) == 0 {
		patches = g.n(5)
	}
	at, ok := g.room(4 * patches)
	if !ok {
		patches, at = 0, 0
	}
	for i := range patches {
		g.patch(g.args[at+4*i:at+4*i+4], l.model)
	}
	*e = refmodel.Entry{refmodel.OpReplay | uint64(patches)<<16, 0, l.handle, 0, 0, 0, uint64(8*at) | 32*uint64(patches)<<32}
}

func (g *generator) patch(w []uint64, l *refmodel.List) {
	entry := g.n(l.Len())
	w[3] = 0
	if inline := l.Inline(entry); inline > 0 && g.n(2) == 0 {
		n := 1 + g.n(min(inline, 16))
		w[0] = uint64(entry) | uint64(n)<<24 | uint64(g.n(inline-n+1))<<32
		w[1], w[2] = g.r.Uint64(), g.r.Uint64()
		return
	}
	w[0], w[1], w[2] = uint64(entry)|1<<16, 0, 0
	if spans := l.Spans(entry); spans > 0 {
		at := g.n(spans)
		bytes := l.Bytes(entry, at)
		w[0] |= uint64(at) << 32
		if w[1] = g.r.Uint64() % bytes &^ 3; g.n(3) == 0 {
			w[1] = 0
		}
		if g.n(2) == 0 {
			w[2] = bytes - w[1]
		}
	}
	if g.n(16) == 0 {
		w[0] ^= uint64(g.n(256)) << (8 * g.n(4))
	}
}

// handle is a bad one, most likely.
func (g *generator) handle() uint64 {
	good := func() uint64 {
		switch g.n(4) {
		case 0:
			if o, ok := pick(g, g.buffers); ok {
				return o.handle
			}
		case 1:
			if o, ok := pick(g, g.programs); ok {
				return o.handle
			}
		case 2:
			if o, ok := pick(g, g.lists); ok {
				return o.handle
			}
		}
		if o, ok := pick(g, g.fences); ok {
			return o.handle
		}
		return 1
	}
	switch g.n(10) {
	case 0, 1:
		if len(g.bad) > 0 {
			return g.bad[g.n(len(g.bad))]
		}
	case 2:
		return good() // of another kind
	case 3:
		return good() + 1<<32 // the next generation
	case 4:
		return good() - 1<<32
	case 5:
		return good() & (1<<32 - 1) // generation 0: as if it had wrapped
	case 6:
		return good() ^ 1<<g.n(64)
	case 7:
		return good() + 1
	case 8:
		return 0
	}
	return g.r.Uint64()
}

// edge is a number near one that matters.
func (g *generator) edge() uint64 {
	b, _ := pick(g, g.buffers)
	bytes := uint64(4096)
	if b.model != nil {
		bytes = b.model.Bytes
	}
	v := [...]uint64{0, bytes, -bytes, 1 << 32, 1 << 31, 1 << 63, 1 << 16, uint64(len(g.args)) * 8, 4096, 128 << 10, 256, 128}[g.n(12)]
	return v + [...]uint64{0, 0, 1, 2, 4, 8, ^uint64(0), ^uint64(3)}[g.n(8)]
}

// spoil changes one thing.
func (g *generator) spoil(e *refmodel.Entry) {
	switch g.n(12) {
	case 0:
		e[2] = g.handle()
	case 1:
		e[4] = g.handle()
	case 2:
		e[2+g.n(6)] = g.edge()
	case 3:
		e[2+g.n(6)] += g.edge()
	case 4:
		e[g.n(8)] ^= 1 << g.n(64)
	case 5:
		e[g.n(8)] ^= uint64(g.n(256)) << (8 * g.n(8))
	case 6: // a half of a word
		k, shift := g.n(8), 32*g.n(2)
		e[k] = e[k]&^(0xffffffff<<shift) | g.edge()&0xffffffff<<shift
	case 7: // a quarter
		k, shift := g.n(8), 16*g.n(4)
		e[k] = e[k]&^(0xffff<<shift) | g.edge()&0xffff<<shift
	case 8:
		e[6] = e[6]&^0xffffffff | 8*uint64(g.n(len(g.args)+4)) // arguments that are another's
	case 9:
		if op := e[0] & 0xff; op == refmodel.OpSignal || op == refmodel.OpWait {
			return // below 2⁶⁴ most of the time, or every signal would be too late
		}
		fallthrough
	default: // an argument
		if at, n := int(uint32(e[6])/8), int(e[6]>>35); (e[0]&0xff == refmodel.OpLaunch || e[0]&0xff == refmodel.OpReplay) && n > 0 && at+n <= g.used {
			w := &g.args[at+g.n(n)]
			switch g.n(4) {
			case 0:
				*w = g.handle()
			case 1:
				*w = g.edge()
			case 2:
				*w += g.edge()
			default:
				*w ^= 1 << g.n(64)
			}
		}
	}
}

// noise is of no shape, or of an extreme one.
func (g *generator) noise(e *refmodel.Entry) {
	if g.n(64) == 0 { // more arguments than are taken
		count := uint64(4000 + g.n(200))
		inline := uint64(g.n(1 << 16))
		*e = refmodel.Entry{refmodel.OpLaunch | count<<16, 0, g.handle(), 0, 0, inline << 16, (32*count + inline) << 32}
		return
	}
	for i := range e {
		e[i] = g.r.Uint64()
	}
	if g.n(2) == 0 {
		e[0] &= 0xff07
	}
}
