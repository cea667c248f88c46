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

// next is whose turn it is; nil: nobody waits.
func (l *line) next() *request {
	if l.count == 0 {
		return nil
	}
	return l.tags[l.turns[0]][0]
}

// pop takes the next request out, and its tag goes to the end of the turns.
func (l *line) pop() *request {
	r := l.next()
	tag := l.turns[0]
	l.turns = l.turns[1:]
	l.count--
	if rest := l.tags[tag][1:]; len(rest) > 0 {
		l.tags[tag] = rest
		l.turns = append(l.turns, tag)
	} else {
		delete(l.tags, tag)
	}
	return r
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

// all are the requests, in no order that matters.
func (l *line) all() []*request {
	var out []*request
	for _, of := range l.tags {
		out = append(out, of...)
	}
	return out
}
