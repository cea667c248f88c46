package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Properties that are checked. A finding names one.
const (
	propWake      = "nobody sleeps beside something to do"
	propEnd       = "the end can be reached from every state"
	propEntry     = "what is read is what was written, once and in order"
	propSlot      = "no slot is written over while it is unread"
	propPositions = "positions stay in bounds and only go forward"
	propAccused   = "no side that keeps the rules is accused"
	propClose     = "everything completed is seen before the closing code"
)

// move is one transition: a step of a thread with a choice, or the i-th of its
// pending stores that comes to be seen.
type move uint16

const noMove = move(math.MaxUint16)

func stepMove(t, choice int) move { return move(t<<8 | choice) }
func drainMove(t, i int) move     { return move(t<<8 | 0x80 | i) }

func (v move) thread() int   { return int(v >> 8) }
func (v move) isDrain() bool { return v&0x80 != 0 }
func (v move) arg() int      { return int(v & 0x7f) }

// finding is a property that fails, and how.
type finding struct {
	property, detail, trace string
}

// report is what an exploration saw.
type report struct {
	states, moves, ends, depth int
	// paths is the number of ways from the beginning to an end: the interleavings
	// that visiting every state once stands for. NaN where a thread may go in circles.
	paths   float64
	steps   map[string]bool // by name: was it ever done
	finding *finding
}

func (r *report) String() string {
	paths := fmt.Sprintf("%.3g", r.paths)
	if math.IsNaN(r.paths) {
		paths = "endlessly many"
	}
	return fmt.Sprintf("%d states, %d moves, %d ends, %d moves deep, %s interleavings", r.states, r.moves, r.ends, r.depth, paths)
}

// explorer visits every state of a machine, breadth first: the first finding is a
// shortest.
type explorer struct {
	m     *machine
	limit int
	index map[key]uint32
	from  []uint32 // by state: where it was first reached from
	by    []move
	edges [][2]uint32
	ends  []uint32
	next  []state
	found *finding

	done       [maxThreads][256]bool // by step: it was done
	to, before state                 // scratch
}

// explore stops at the first finding, and panics beyond limit states.
func explore(m *machine, limit int) report {
	m.check()
	e := &explorer{m: m, limit: limit, index: map[key]uint32{}}
	var first state
	if failed, _ := e.settle(&first, nil); failed != "" {
		panic("a model that fails before it begins: " + failed)
	}
	e.reach(&first, 0, 0)
	depth, number := -1, uint32(0)
	for len(e.next) > 0 && e.found == nil {
		level := e.next
		e.next = nil
		depth++
		for i := range level {
			e.expand(&level[i], number)
			number++
			if e.found != nil {
				break
			}
		}
	}
	if e.found == nil {
		e.checkEnds()
	}
	r := report{states: len(e.from), moves: len(e.edges), ends: len(e.ends), depth: depth, finding: e.found}
	if e.found == nil {
		r.paths = e.countPaths()
	}
	r.steps = map[string]bool{}
	for t, th := range m.threads {
		for pc, at := range th.steps {
			if at.name != "" {
				name := th.name + ": " + at.name
				r.steps[name] = r.steps[name] || e.done[t][pc]
			}
		}
	}
	return r
}

// settle does what no other thread can tell: local steps that leave no choice. They
// are part of the move before.
func (e *explorer) settle(s *state, log *[]string) (property, detail string) {
	for t, th := range e.m.threads {
		for !e.m.over(s, t) && th.steps[s.pc[t]].local {
			e.before = *s
			var said []string
			x := e.m.run(s, t, 0, sink(log, &said))
			if x.blocked || x.choices > 1 {
				*s = e.before
				break
			}
			e.done[t][e.before.pc[t]] = true
			e.tell(log, t, int(e.before.pc[t]), said)
			if x.failed != "" {
				return x.failed, x.detail
			}
		}
	}
	return "", ""
}

// sink is said if somebody reads log.
func sink(log, said *[]string) *[]string {
	if log == nil {
		return nil
	}
	return said
}

func (e *explorer) tell(log *[]string, t, pc int, said []string) {
	if log == nil {
		return
	}
	name := e.m.threads[t].steps[pc].name
	if name == "" && len(said) == 0 {
		return
	}
	*log = append(*log, fmt.Sprintf("%-10s %-34s %s", e.m.threads[t].name, name, strings.Join(said, "; ")))
}

// expand makes every move that a state leaves.
func (e *explorer) expand(s *state, at uint32) {
	// A choice that no other thread can tell needs no interleaving.
	for t, th := range e.m.threads {
		if e.m.over(s, t) || !th.steps[s.pc[t]].local {
			continue
		}
		if blocked, choices := e.try(s, at, stepMove(t, 0)); !blocked {
			for c := 1; c < choices; c++ {
				e.try(s, at, stepMove(t, c))
			}
			return
		}
	}
	moved := false
	for t := range e.m.threads {
		for i := range int(s.n[t]) {
			if e.m.mayDrain(s, t, i) {
				moved = true
				e.try(s, at, drainMove(t, i))
			}
		}
		if e.m.over(s, t) {
			continue
		}
		for c, n := 0, 1; c < n; c++ {
			blocked, choices := e.try(s, at, stepMove(t, c))
			moved = moved || !blocked
			n = max(n, choices)
		}
	}
	if !moved && e.found == nil {
		e.end(s, at)
	}
}

// try makes one move, if it is not blocked.
func (e *explorer) try(s *state, at uint32, v move) (blocked bool, choices int) {
	if e.found != nil {
		return false, 0
	}
	to := &e.to
	*to = *s
	x := e.do(to, v, nil)
	blocked, choices = x.blocked, x.choices
	if blocked {
		return blocked, choices
	}
	if !v.isDrain() {
		e.done[v.thread()][s.pc[v.thread()]] = true
	}
	failed, detail := x.failed, x.detail
	if failed == "" {
		failed, detail = e.settle(to, nil)
	}
	if failed != "" {
		e.found = &finding{failed, detail, e.trace(at, v)}
		return blocked, choices
	}
	e.edges = append(e.edges, [2]uint32{at, e.reach(to, at, v)})
	return blocked, choices
}

func (e *explorer) do(s *state, v move, log *[]string) *ctx {
	if v.isDrain() {
		return e.m.drain(s, v.thread(), v.arg(), log)
	}
	return e.m.run(s, v.thread(), v.arg(), log)
}

// reach returns the number of a state, a new one for one that was never seen.
func (e *explorer) reach(s *state, from uint32, by move) uint32 {
	k := e.m.key(s)
	at, ok := e.index[k]
	if !ok {
		at = uint32(len(e.from))
		if len(e.from) == e.limit {
			panic(fmt.Sprintf("more than %d states", e.limit))
		}
		e.index[k] = at
		e.from, e.by = append(e.from, from), append(e.by, by)
		e.next = append(e.next, *s)
	}
	return at
}

// end looks at a state that nothing leaves.
func (e *explorer) end(s *state, at uint32) {
	for t, th := range e.m.threads {
		if e.m.over(s, t) || th.daemon && th.steps[s.pc[t]].sleep {
			continue
		}
		e.found = &finding{propWake, fmt.Sprintf("nothing moves any more, and %s waits: %s", th.name, th.steps[s.pc[t]].name), e.trace(at, noMove)}
		return
	}
	if property, detail := e.m.ended(s); property != "" {
		e.found = &finding{property, detail, e.trace(at, noMove)}
		return
	}
	e.ends = append(e.ends, at)
}

// trace tells the way to a state, and the move after it if there is one.
func (e *explorer) trace(at uint32, last move) string {
	var way []move
	if last != noMove {
		way = append(way, last)
	}
	for ; at != 0; at = e.from[at] {
		way = append(way, e.by[at])
	}
	slices.Reverse(way)
	var s state
	var log []string
	e.settle(&s, &log)
	for _, v := range way {
		pc := int(s.pc[v.thread()])
		var said []string
		x := e.do(&s, v, &said)
		if v.isDrain() {
			log = append(log, fmt.Sprintf("%-10s %-34s %s", e.m.threads[v.thread()].name, "(memory)", strings.Join(said, "; ")))
		} else {
			e.tell(&log, v.thread(), pc, said)
		}
		if x.failed == "" {
			e.settle(&s, &log)
		}
	}
	var b strings.Builder
	for i, line := range log {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, "  at the end: %s", e.m.describe(&s))
	return b.String()
}

// neighbours lists, by state, the others at the far end of its edges.
func (e *explorer) neighbours(near, far int) (start, to []uint32) {
	start = make([]uint32, len(e.from)+1)
	for _, edge := range e.edges {
		start[edge[near]+1]++
	}
	for i := range len(e.from) {
		start[i+1] += start[i]
	}
	to = make([]uint32, len(e.edges))
	at := slices.Clone(start)
	for _, edge := range e.edges {
		to[at[edge[near]]] = edge[far]
		at[edge[near]]++
	}
	return start, to
}

// checkEnds looks for states that no end can be reached from.
func (e *explorer) checkEnds() {
	start, from := e.neighbours(1, 0)
	good := make([]bool, len(e.from))
	stack := slices.Clone(e.ends)
	for _, at := range stack {
		good[at] = true
	}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, p := range from[start[at]:start[at+1]] {
			if !good[p] {
				good[p] = true
				stack = append(stack, p)
			}
		}
	}
	if at := slices.Index(good, false); at >= 0 {
		e.found = &finding{propEnd, "no end can be reached any more", e.trace(uint32(at), noMove)}
	}
}

// countPaths counts the ways from the beginning to the ends.
func (e *explorer) countPaths() float64 {
	start, to := e.neighbours(0, 1)
	open := make([]uint32, len(e.from)) // edges into a state that were not counted yet
	for _, edge := range e.edges {
		if edge[0] != edge[1] {
			open[edge[1]]++
		}
	}
	ways := make([]float64, len(e.from))
	ways[0] = 1
	ready, seen := []uint32{0}, 0
	for len(ready) > 0 {
		at := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		seen++
		for _, n := range to[start[at]:start[at+1]] {
			if n == at {
				continue
			}
			ways[n] += ways[at]
			if open[n]--; open[n] == 0 {
				ready = append(ready, n)
			}
		}
	}
	if seen != len(e.from) {
		return math.NaN()
	}
	total := 0.0
	for _, at := range e.ends {
		total += ways[at]
	}
	return total
}
