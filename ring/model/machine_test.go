package model

import (
	"fmt"
	"strings"
)

// Bounds of a machine. They make a state a value of fixed size; a model that
// needs more panics.
const (
	maxThreads = 5
	maxWords   = 40
	maxVars    = 8
	maxOwn     = 24
	maxPipes   = 6
	maxBuffer  = 10
	keyBytes   = 72
)

type (
	// word names a place in shared memory.
	word uint8
	// pipe names what carries wakes: a pipe, or a channel.
	pipe uint8
	// own names a variable that several threads use one after the other: guarded by a
	// lock or handed over a channel in the code, or kept only to check against.
	own uint8
	// reg names a variable of one thread.
	reg uint8
)

// order is how a thread's stores reach the memory that the others see.
type order int

const (
	// tso: in the order in which they were made.
	tso order = iota
	// pso: those of one word in the order in which they were made, a release after
	// all before it, and else in any order.
	pso
)

func (o order) String() string { return [...]string{"TSO", "PSO"}[o] }

// machine is a model: its names, and a program per thread.
type machine struct {
	order order
	// reduced lets a plain store be seen as late as it can be: together with the next
	// release of its thread. See the package comment.
	reduced bool
	words   []string
	plain   []bool // by word: stored plainly, not by an atomic
	owns    []string
	pipes   []string
	threads []*thread
	// written looks at a store that reaches the memory; it may fail x.
	written func(x *ctx, w word, v uint8)
	// ended looks at a state in which nothing can happen any more and all is well as
	// far as the threads are concerned: it says what property fails, or "".
	ended func(s *state) (property, detail string)
	x     ctx
}

// thread is a program: a list of steps, one after the other unless one jumps. It
// has ended behind the last.
type thread struct {
	name   string
	daemon bool // need not end: asleep is good enough
	vars   []string
	steps  []step
}

// step is one atomic action: at most one access to what is shared, and any amount
// of thought.
type step struct {
	name  string
	local bool // no access: nobody else can tell when it happens
	sleep bool // a daemon may be here for ever
	do    func(x *ctx)
}

// label is a place in a program that steps jump to.
type label struct{ pc int }

func (m *machine) word(name string, plain bool) word {
	m.words, m.plain = append(m.words, name), append(m.plain, plain)
	return word(len(m.words) - 1)
}

func (m *machine) own(name string) own {
	m.owns = append(m.owns, name)
	return own(len(m.owns) - 1)
}

func (m *machine) pipe(name string) pipe {
	m.pipes = append(m.pipes, name)
	return pipe(len(m.pipes) - 1)
}

func (m *machine) thread(name string, daemon bool) *thread {
	t := &thread{name: name, daemon: daemon}
	m.threads = append(m.threads, t)
	return t
}

func (m *machine) check() {
	if len(m.words) > maxWords || len(m.owns) > maxOwn || len(m.pipes) > maxPipes || len(m.threads) > maxThreads {
		panic("a model beyond its bounds")
	}
}

func (t *thread) reg(name string) reg {
	t.vars = append(t.vars, name)
	if len(t.vars) > maxVars {
		panic("a thread with too many variables")
	}
	return reg(len(t.vars) - 1)
}

func (t *thread) step(name string, do func(x *ctx)) {
	t.steps = append(t.steps, step{name: name, do: do})
}

// local is a step without an access, apart from stores that nobody else sees yet.
func (t *thread) local(name string, do func(x *ctx)) {
	t.steps = append(t.steps, step{name: name, local: true, do: do})
}

// sleep is a step in which a daemon may be left.
func (t *thread) sleep(name string, do func(x *ctx)) {
	t.steps = append(t.steps, step{name: name, sleep: true, do: do})
}

// place puts a label before the next step.
func (t *thread) place(l *label) { l.pc = len(t.steps) }

// goTo is a step that only jumps.
func (t *thread) goTo(l *label) { t.local("", func(x *ctx) { x.jump(l) }) }

// pending is a store that only its thread sees.
type pending struct {
	w word
	v uint8
}

// state is all there is at one moment.
type state struct {
	mem  [maxWords]uint8
	own  [maxOwn]uint8
	pipe [maxPipes]uint8 // 1: a wake is pending, 2: the writing end is closed; both: 3
	pc   [maxThreads]uint8
	vars [maxThreads][maxVars]uint8
	n    [maxThreads]uint8 // stores pending
	buf  [maxThreads][maxBuffer]pending
}

const (
	token = 1
	eof   = 2
)

type key [keyBytes]byte

// key is the state in fewer bytes: two values in each, which are below 16.
func (m *machine) key(s *state) (k key) {
	at := 0
	put := func(values []uint8) {
		for i := 0; i < len(values); i += 2 {
			v := values[i]
			if i+1 < len(values) {
				v |= values[i+1] << 4
			}
			k[at] = v
			at++
		}
	}
	put(s.mem[:len(m.words)])
	put(s.own[:len(m.owns)])
	put(s.pipe[:len(m.pipes)])
	for i, t := range m.threads {
		k[at] = s.pc[i]
		at++
		put(s.vars[i][:len(t.vars)])
		n := s.n[i]
		k[at] = n
		at++
		for _, p := range s.buf[i][:n] {
			k[at], k[at+1] = uint8(p.w), p.v
			at += 2
		}
	}
	return k
}

// at returns the machine's one ctx, made ready for another move.
func (m *machine) at(s *state, t, choice int, log *[]string) *ctx {
	m.x = ctx{m: m, s: s, t: t, choice: choice, log: log}
	return &m.x
}

// run does a thread's next step with a choice, on s itself.
func (m *machine) run(s *state, t, choice int, log *[]string) *ctx {
	x := m.at(s, t, choice, log)
	at := &m.threads[t].steps[s.pc[t]]
	x.local, x.next = at.local, int(s.pc[t])+1
	at.do(x)
	s.pc[t] = uint8(x.next)
	return x
}

func (m *machine) over(s *state, t int) bool { return int(s.pc[t]) == len(m.threads[t].steps) }

// mayDrain reports whether the i-th pending store of a thread can be the next seen;
// in a reduced machine, with all before it.
func (m *machine) mayDrain(s *state, t, i int) bool {
	before := s.buf[t][:i]
	w := s.buf[t][i].w
	if m.reduced {
		for _, p := range before {
			if !m.plain[p.w] {
				return false
			}
		}
		return !m.plain[w]
	}
	if i == 0 || m.order == tso || !m.plain[w] {
		return i == 0
	}
	for _, p := range before {
		if p.w == w {
			return false
		}
	}
	return true
}

// drain lets others see a pending store.
func (m *machine) drain(s *state, t, i int, log *[]string) *ctx {
	x := m.at(s, t, 0, log)
	b := &s.buf[t]
	p := b[i]
	x.say("its store %s ← %d is seen", m.words[p.w], p.v)
	if m.reduced {
		x.drainUntil(i + 1)
		return x
	}
	n := int(s.n[t])
	copy(b[i:n-1], b[i+1:n])
	b[n-1] = pending{}
	s.n[t]--
	x.write(p.w, p.v)
	return x
}

// describe is the memory, for the end of a trace.
func (m *machine) describe(s *state) string {
	var b strings.Builder
	for i, name := range m.words {
		fmt.Fprintf(&b, "%s=%d ", name, s.mem[i])
	}
	for i, name := range m.owns {
		fmt.Fprintf(&b, "%s=%d ", name, s.own[i])
	}
	for i, t := range m.threads {
		where := "ended"
		if !m.over(s, i) {
			where = t.steps[s.pc[i]].name
		}
		fmt.Fprintf(&b, "\n  %s is at: %s;", t.name, where)
		for v, name := range t.vars {
			fmt.Fprintf(&b, " %s=%d", name, s.vars[i][v])
		}
	}
	return b.String()
}
