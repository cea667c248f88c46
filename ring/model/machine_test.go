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

// ctx is what a step acts through.
type ctx struct {
	m       *machine
	s       *state
	t       int // the thread
	choice  int // what choose answers
	choices int // how many choices there were
	local   bool
	shared  bool
	blocked bool
	next    int
	failed  string // the property
	detail  string
	log     *[]string // what was done, for a trace; nil: nobody reads it
}

func (x *ctx) say(format string, args ...any) {
	if x.log != nil {
		*x.log = append(*x.log, fmt.Sprintf(format, args...))
	}
}

func (x *ctx) touch() {
	if x.shared || x.local {
		panic("a step with too many accesses")
	}
	x.shared = true
}

func (x *ctx) get(r reg) uint8    { return x.s.vars[x.t][r] }
func (x *ctx) set(r reg, v uint8) { x.s.vars[x.t][r] = v }
func (x *ctx) jump(l *label)      { x.next = l.pc }
func (x *ctx) block()             { x.blocked = true }

// choose is a free choice of 0 to n-1: the exploration makes each. Once a step.
func (x *ctx) choose(n int) int {
	x.choices = n
	x.say("choose %d of %d", x.choice+1, n)
	return x.choice
}

func (x *ctx) fail(property, format string, args ...any) {
	if x.failed == "" {
		x.failed, x.detail = property, fmt.Sprintf(format, args...)
		x.say("FAILS: %s", x.detail)
	}
}

// load is an atomic load with acquire: nothing later in the program is before it.
func (x *ctx) load(w word) uint8 {
	x.touch()
	s := x.s
	for i := int(s.n[x.t]) - 1; i >= 0; i-- {
		if p := s.buf[x.t][i]; p.w == w {
			x.say("load %s = %d, its own store", x.m.words[w], p.v)
			return p.v
		}
	}
	x.say("load %s = %d", x.m.words[w], s.mem[w])
	return s.mem[w]
}

// store is seen by others later: when the buffer drains. For all but the slots it
// is a release.
func (x *ctx) store(w word, v uint8) {
	s := x.s
	if s.n[x.t] == maxBuffer {
		x.block()
		return
	}
	s.buf[x.t][s.n[x.t]] = pending{w, v}
	s.n[x.t]++
	x.say("store %s ← %d, not yet seen", x.m.words[w], v)
}

// fence blocks until the thread's own stores are seen. It counts as the access.
func (x *ctx) fence() bool {
	x.touch()
	s := x.s
	if n := s.n[x.t]; n > 0 {
		for _, p := range s.buf[x.t][:n] {
			if !x.m.reduced || !x.m.plain[p.w] {
				x.block()
				return false
			}
		}
		x.drainUntil(int(n))
	}
	return true
}

// drainUntil lets others see the first n pending stores.
func (x *ctx) drainUntil(n int) {
	for range n {
		b := &x.s.buf[x.t]
		p := b[0]
		copy(b[:], b[1:])
		x.s.n[x.t]--
		b[x.s.n[x.t]] = pending{}
		x.write(p.w, p.v)
	}
}

// peek is a load that no other thread can tell the moment of.
func (x *ctx) peek(w word) uint8 {
	x.say("read %s = %d", x.m.words[w], x.s.mem[w])
	return x.s.mem[w]
}

// swap and cas wait until the thread's own stores are seen.
func (x *ctx) swap(w word, v uint8) uint8 {
	if !x.fence() {
		return 0
	}
	old := x.s.mem[w]
	x.say("swap %s %d → %d", x.m.words[w], old, v)
	x.write(w, v)
	return old
}

func (x *ctx) cas(w word, old, v uint8) bool {
	if !x.fence() {
		return false
	}
	if x.s.mem[w] != old {
		x.say("compare-and-swap %s fails, it is %d", x.m.words[w], x.s.mem[w])
		return false
	}
	x.say("compare-and-swap %s %d → %d", x.m.words[w], old, v)
	x.write(w, v)
	return true
}

// or is an atomic or, with the old value.
func (x *ctx) or(w word, bits uint8) (old uint8) {
	if !x.fence() {
		return 0
	}
	old = x.s.mem[w]
	x.say("or %s %#b | %#b", x.m.words[w], old, bits)
	x.write(w, old|bits)
	return old
}

func (x *ctx) write(w word, v uint8) {
	x.m.written(x, w, v)
	x.s.mem[w] = v
}

// signal writes to a pipe. The kernel takes the pipe's lock: own stores are seen
// before. Many wakes are as one.
func (x *ctx) signal(p pipe) {
	if !x.fence() {
		return
	}
	x.s.pipe[p] |= token
	x.say("signal %s", x.m.pipes[p])
}

// hangUp closes the writing end.
func (x *ctx) hangUp(p pipe) {
	x.touch()
	x.s.pipe[p] |= eof
	x.say("close %s", x.m.pipes[p])
}

// woken empties a pipe, and says whether there was something.
func (x *ctx) woken(p pipe) bool {
	if x.s.pipe[p]&token == 0 {
		return false
	}
	x.s.pipe[p] &^= token
	x.say("woken by %s", x.m.pipes[p])
	return true
}

// slept is woken, but what woke it may stay in the pipe: of a wait that the poller woke it
// does, until drain, or the next wait.
func (x *ctx) slept(p pipe, stays bool) bool {
	if stays && x.s.pipe[p]&token != 0 {
		x.say("woken by %s, and leaves it", x.m.pipes[p])
		return true
	}
	return x.woken(p)
}

// drain takes what may have stayed.
func (x *ctx) drain(p pipe) {
	x.touch()
	if x.s.pipe[p]&token != 0 && x.choose(2) == 0 {
		x.say("drain %s", x.m.pipes[p])
		x.s.pipe[p] &^= token
	}
}

// wait is woken, or sleeps.
func (x *ctx) wait(p pipe) {
	if x.fence() && !x.woken(p) && x.s.pipe[p]&eof == 0 {
		x.block()
	}
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
