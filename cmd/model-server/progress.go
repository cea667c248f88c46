package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
)

// progress shows on a terminal how far loading is, in one line that disappears
// before anything else is written through it.
type progress struct {
	w    io.Writer
	name string

	mu sync.Mutex
	// +checklocks:mu
	begun, drawn time.Time
	// +checklocks:mu
	dirty bool // the line is on the terminal
}

const (
	quietFor   = 300 * time.Millisecond // a shorter load is not shown
	redrawEach = 100 * time.Millisecond
)

// bytes reports that done of total bytes are in the device.
func (p *progress) bytes(done, total uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if done == 0 {
		p.begun = now
	}
	if total == 0 || now.Sub(p.begun) < quietFor || now.Sub(p.drawn) < redrawEach {
		return
	}
	p.drawn, p.dirty = now, true
	fmt.Fprintf(p.w, "\r\x1b[Kloading %s  %3d%%  %s of %s", p.name, done*100/total, mib(done), mib(total))
}

func mib(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Write is for the log.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
	return p.w.Write(b)
}

// clear removes the line.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearLocked()
}

// +checklocks:p.mu
func (p *progress) clearLocked() {
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
}

// visible is a name without characters that a terminal would obey.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
