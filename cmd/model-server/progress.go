package main

import (
	"fmt"
	"io"
	"time"
)

// progress tells a terminal how far loading is, in one line that goes away again.
type progress struct {
	w     io.Writer
	name  string
	begun time.Time
	drawn time.Time
	dirty bool // the line is on the terminal
}

const (
	quietFor   = 300 * time.Millisecond // what is that short needs no telling
	redrawEach = 100 * time.Millisecond
)

// bytes says that done of total bytes are in the device.
func (p *progress) bytes(done, total uint64, now time.Time) {
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

// clear takes the line away, before anything else is told.
func (p *progress) clear() {
	if p.dirty {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.dirty = false
	}
}
