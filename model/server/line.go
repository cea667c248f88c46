package server

import "slices"

// line is the requests that have not begun: those of each tag in the order in which they
// came, and the tags in turn.
type line struct {
	tags  map[string][]*request
	turns []string // tags with requests, the next one first
	count int
}

// push adds a request at the end of its tag's.
func (l *line) push(r *request) {
	if l.tags == nil {
		l.tags = map[string][]*request{}
	}
	if len(l.tags[r.tag]) == 0 {
		l.turns = append(l.turns, r.tag)
	}
	l.tags[r.tag] = append(l.tags[r.tag], r)
	l.count++
}

// next is whose turn it is: of the tags with the fewest places, the one whose turn is
// the longest ago. nil: nobody waits.
func (l *line) next(places func(tag string) int) *request {
	var r *request
	fewest := 0
	for _, tag := range l.turns {
		if n := places(tag); r == nil || n < fewest {
			r, fewest = l.tags[tag][0], n
		}
	}
	return r
}

// pop takes out what next has told, and the tag goes to the end of the turns.
func (l *line) pop(r *request) {
	l.remove(r)
	if len(l.tags[r.tag]) > 0 {
		l.turns = append(slices.DeleteFunc(l.turns, func(t string) bool { return t == r.tag }), r.tag)
	}
}

// remove takes r out, wherever it is.
func (l *line) remove(r *request) {
	of := l.tags[r.tag]
	i := slices.Index(of, r)
	if i < 0 {
		return
	}
	l.count--
	if of = slices.Delete(of, i, i+1); len(of) > 0 {
		l.tags[r.tag] = of
		return
	}
	delete(l.tags, r.tag)
	l.turns = slices.DeleteFunc(l.turns, func(t string) bool { return t == r.tag })
}

// last is the youngest request of the tag that has the most; nil: nobody waits.
func (l *line) last() *request {
	var most []*request
	for _, tag := range l.turns {
		if of := l.tags[tag]; len(of) > len(most) {
			most = of
		}
	}
	if most == nil {
		return nil
	}
	return most[len(most)-1]
}

// all are the requests, in no order that matters.
func (l *line) all() []*request {
	var out []*request
	for _, of := range l.tags {
		out = append(out, of...)
	}
	return out
}
