package rpcguardtest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// Config says what conversations are about.
type Config struct {
	Schema *Schema
	// Root is the interface of the bootstrap capability.
	Root uint64
	// Prelude names calls, in order, with which most conversations begin, so that
	// there is something to talk about.
	Prelude []Call
	// Numbers and Texts are usual values of fields, by name.
	Numbers map[string][]uint64
	Texts   map[string][]string
	// MaxMessages follow the prelude; 0: 40.
	MaxMessages int
}

// Call names a method.
type Call struct {
	Interface uint64
	Method    uint16
}

// Generator makes conversations.
type Generator struct {
	c        Config
	rng      *rand.Rand
	sound    bool // this conversation breaks no rule of the protocol, mostly
	open     []uint32
	promises []promise
	rootHeld bool     // export 0, the bootstrap's, was not given back
	caps     []uint64 // interfaces of the arguments of the call in the making
}

// promise is a capability that a call has returned, or will.
type promise struct {
	question uint32
	path     []uint16
	iface    uint64
}

// NewGenerator makes the conversations of a seed.
func NewGenerator(c Config, rng *rand.Rand) *Generator {
	if c.MaxMessages == 0 {
		c.MaxMessages = 40
	}
	return &Generator{c: c, rng: rng}
}

// Stream is a whole conversation, without waiting for any answer. sound: it was
// not damaged.
func (g *Generator) Stream() (stream []byte, sound bool) {
	g.sound = g.rng.IntN(2) == 0
	g.open, g.promises, g.rootHeld = nil, nil, true
	messages := [][]byte{g.bootstrap(0)}
	next := uint32(1)
	for _, c := range g.c.Prelude {
		target, ok := g.promiseWith(c)
		if ok && g.rng.IntN(20) > 0 {
			messages = append(messages, g.call(next, target, g.methodOf(c)))
			next++
		}
	}

	for range g.rng.IntN(g.c.MaxMessages) {
		id := next
		if !g.sound && g.rng.IntN(20) == 0 {
			id = g.question()
		}
		messages = append(messages, g.message(id))
		next++
	}

	if !g.sound && g.rng.IntN(4) == 0 {
		g.rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	}

	var all []byte
	for i, m := range messages {
		// Later ones more often: the first breach ends the conversation.
		if !g.sound && g.rng.IntN(2*len(messages)) < i {
			m = g.mutate(m)
		}
		all = append(all, m...)
	}

	if g.sound {
		return all, true
	}

	switch g.rng.IntN(10) {
	case 0:
		all = g.mutate(all)
	case 1:
		all = all[:g.rng.IntN(len(all))]
	}

	return all, false
}

func (g *Generator) bootstrap(id uint32) []byte {
	g.open = append(g.open, id)
	g.promises = append(g.promises, promise{question: id, iface: g.c.Root})
	return Bootstrap(id)
}

// message is any message, with id as its question if it asks one.
func (g *Generator) message(id uint32) []byte {
	switch g.rng.IntN(24) {
	case 0:
		return g.bootstrap(id)
	case 1, 2:
		return g.finish()
	case 3:
		return g.release()
	case 4:
		p := g.anyPromise()
		return Disembargo(uint32(g.rng.IntN(6)), p.question, p.path)
	default:
		target := g.anyPromise()
		return g.call(id, target, g.anyMethod(target.iface))
	}
}

func (g *Generator) finish() []byte {
	id := g.question()
	g.open = slices.DeleteFunc(g.open, func(q uint32) bool { return q == id })
	g.promises = slices.DeleteFunc(g.promises, func(p promise) bool { return p.question == id })
	return Finish(id, g.rng.IntN(2) == 0)
}

func (g *Generator) release() []byte {
	if !g.sound {
		return Release(uint32(g.rng.IntN(6)), uint32(g.rng.IntN(3)))
	}
	switch {
	case !g.rootHeld:
		return Disembargo(0, g.question(), nil)
	case g.rng.IntN(4) > 0:
		return Release(0, 0)
	default:
		g.rootHeld = false
		return Release(0, 1)
	}
}

// question is one that is open, rarely any.
func (g *Generator) question() uint32 {
	if len(g.open) > 0 && g.rng.IntN(60) > 0 {
		return g.open[g.rng.IntN(len(g.open))]
	}
	return uint32(g.rng.IntN(12))
}

// export is a capability that was returned, rarely any number.
func (g *Generator) export() uint32 {
	if g.rootHeld && g.rng.IntN(20) > 0 {
		return 0
	}
	return uint32(g.rng.IntN(8))
}

func (g *Generator) anyPromise() promise {
	if len(g.promises) == 0 || g.rng.IntN(60) == 0 {
		p := promise{question: g.question(), iface: g.c.Schema.ids[g.rng.IntN(len(g.c.Schema.ids))]}
		for range g.rng.IntN(3) {
			p.path = append(p.path, uint16(g.rng.IntN(3)))
		}
		return p
	}

	// The more methods it has the better.
	best := g.promises[g.rng.IntN(len(g.promises))]
	for range 2 {
		other := g.promises[g.rng.IntN(len(g.promises))]
		if len(g.c.Schema.interfaces[other.iface].methods) > len(g.c.Schema.interfaces[best.iface].methods) {
			best = other
		}
	}

	return best
}

// promiseOf is a capability of an interface, rarely of another.
func (g *Generator) promiseOf(want uint64) (promise, bool) {
	var fit []promise
	for _, p := range g.promises {
		if p.iface == want {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 || g.rng.IntN(16) == 0 {
		fit = g.promises
	}
	if len(fit) == 0 {
		return promise{}, false
	}
	return fit[g.rng.IntN(len(fit))], true
}

// promiseWith is a capability that has a method.
func (g *Generator) promiseWith(c Call) (promise, bool) {
	for _, p := range g.promises {
		for _, m := range g.c.Schema.interfaces[p.iface].methods {
			if m.iface == c.Interface && m.number == c.Method {
				return p, true
			}
		}
	}
	return promise{}, false
}

func (g *Generator) methodOf(c Call) method {
	return g.c.Schema.interfaces[c.Interface].methods[c.Method]
}

// anyMethod is one of an interface, rarely of any.
func (g *Generator) anyMethod(id uint64) method {
	if g.rng.IntN(60) == 0 {
		id = g.c.Schema.ids[g.rng.IntN(len(g.c.Schema.ids))]
	}
	methods := g.c.Schema.interfaces[id].methods
	if len(methods) == 0 {
		return method{iface: id, params: g.c.Schema.interfaces[g.c.Root].methods[0].params}
	}
	m := methods[g.rng.IntN(len(methods))]
	if g.rng.IntN(100) == 0 {
		m.number = uint16(g.rng.IntN(20))
	}
	return m
}

func (g *Generator) call(id uint32, target promise, m method) []byte {
	bytes := Build(func(root rpccp.Message) error {
		c, err := root.NewCall()
		if err != nil {
			return err
		}
		c.SetQuestionId(id)
		c.SetInterfaceId(m.iface)
		c.SetMethodId(m.number)
		if g.rng.IntN(400) == 0 {
			c.SendResultsTo().SetYourself()
		}
		to, err := c.NewTarget()
		if err != nil {
			return err
		}
		if g.rootHeld && target.iface == g.c.Root && len(target.path) == 0 && g.rng.IntN(2) == 0 {
			to.SetImportedCap(0)
		} else if err := SetPromise(to.NewPromisedAnswer, target.question, target.path); err != nil {
			return err
		}
		params, err := c.NewParams()
		if err != nil {
			return err
		}
		t := g.c.Schema.structs[m.params]
		args, err := capnp.NewStruct(params.Segment(), t.size)
		if err != nil {
			return err
		}
		g.caps = g.caps[:0]
		g.fill(args, t, maxValueDepth)
		if err := params.SetContent(args.ToPtr()); err != nil {
			return err
		}
		return g.capTable(params)
	})
	g.open = append(g.open, id)
	for _, c := range m.caps {
		g.promises = append(g.promises, promise{question: id, path: []uint16{c.field}, iface: c.iface})
	}

	return bytes
}

// mutate damages bytes in a few places.
func (g *Generator) mutate(b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + g.rng.IntN(4) {
		at := g.rng.IntN(len(b))
		word := at &^ 7
		switch g.rng.IntN(6) {
		case 0:
			b[at] ^= 1 << g.rng.IntN(8)
		case 1:
			b[at] = byte(g.rng.Uint32())
		case 2: // a pointer to somewhere else
			if word+8 <= len(b) {
				binary.LittleEndian.PutUint32(b[word:], uint32(int32(g.rng.IntN(64)-32)<<2)|uint32(g.rng.IntN(4)))
			}
		case 3:
			if word+8 <= len(b) {
				binary.LittleEndian.PutUint64(b[word:], g.rng.Uint64())
			}
		case 4: // one word in place of another
			if from := g.rng.IntN(len(b)) &^ 7; word+8 <= len(b) && from+8 <= len(b) {
				copy(b[word:word+8], b[from:from+8])
			}
		case 5:
			b = append(b[:at], append(make([]byte, 8), b[at:]...)...)
		}
	}

	return b
}
