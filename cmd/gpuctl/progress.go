package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress shows a waiting user how far a long run is. On a terminal it redraws one
// line and removes it at the end; otherwise (--progress with a file or pipe) it
// prints a line at every tenth.
//
// Nothing is drawn before quietFor, so short runs stay silent on a terminal.
type progress struct {
	w    io.Writer
	on   bool
	term bool
	now  func() time.Time

	mu sync.Mutex // the compute stage draws from its own goroutine
	// +checklocks:mu
	begun time.Time
	// +checklocks:mu
	drawn time.Time
	// +checklocks:mu
	tenth uint64
	// +checklocks:mu
	dirty bool // a line without its newline is on the terminal
}

const (
	quietFor   = 500 * time.Millisecond
	redrawEach = 100 * time.Millisecond
)

// start begins a run.
func (p *progress) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = p.now()
}

// bytes reports that done of total bytes of a stage are processed.
func (p *progress) bytes(stage string, done, total uint64) {
	if !p.on || total == 0 {
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	percent := done * 100 / total
	line := fmt.Sprintf("%s  %3d%%  %s of %s", visible(stage), percent, bytesText(done), bytesText(total))
	if p.term {
		p.redrawLocked(line)
		return
	}
	if tenth := percent / 10; done < total && tenth == p.tenth {
		return
	}

	p.tenth = percent / 10
	if done == total {
		p.tenth = 0 // for the next stage
	}

	fmt.Fprintln(p.w, line)
}

// elapsed reports that a stage without a measure still runs.
func (p *progress) elapsed(stage string, d time.Duration) {
	if !p.on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s  %.1f s", visible(stage), d.Seconds())
	if p.term {
		p.redrawLocked(line)
		return
	}
	if now := p.now(); now.Sub(p.drawn) >= 5*time.Second {
		p.drawn = now
		fmt.Fprintln(p.w, line)
	}
}

// +checklocks:p.mu
func (p *progress) redrawLocked(line string) {
	now := p.now()
	if now.Sub(p.begun) < quietFor || now.Sub(p.drawn) < redrawEach {
		return
	}
	p.drawn, p.dirty = now, true
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}

// clear removes the line, before anything else is printed.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
}
