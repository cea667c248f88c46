package manager

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limits of log lines of one cause: a burst, and then one per interval. Lines of a known user
// have smaller limits, so that they do not suppress those of another.
const (
	causeBurst    = 64
	causeInterval = 2 * time.Second
	peerBurst     = 16
	peerInterval  = 10 * time.Second
	// A driver's output is limited where it is read, too (stderr.go).
	driverBurst    = lineBurst
	driverInterval = time.Second

	// maxCauses and maxPeers bound the memory. Causes and peers beyond that share one bucket.
	maxCauses = 512
	maxPeers  = 256

	leftOutAfter = 10 * time.Second // at most so long until a count is logged
)

// PacedLog limits how many log lines of each cause pass. A stranger, a client, a gate or a
// driver can repeat without end the act that the manager logs. The cause of a line is its
// message, the attribute "tenant" and the attributes of its logger except "pid". Its peer is
// the attribute "uid". Suppressed lines are counted, and the count is a line.
//
//	line ──► limit of its peer ──► limit of its cause ──► next
//	              └───── spent ────────┴──► counted ──leftOutAfter──► "lines were left out"
type PacedLog struct {
	paces *logPaces
	next  slog.Handler
	cause string // of the logger's attributes
	peer  string
	said  bool // logs a driver's output
}

var _ slog.Handler = (*PacedLog)(nil)

// logPaces is the state that all loggers of one PacedLog share.
type logPaces struct {
	mu sync.Mutex
	// +checklocks:mu
	causes map[string]*bucket
	// +checklocks:mu
	peers map[string]*bucket // of each cause
	// +checklocks:mu
	leftOut map[string]*leftOut // by cause and peer
	// +checklocks:mu
	closed bool

	telling sync.WaitGroup // timers that are set or run
}

// leftOut counts the lines of one cause and peer that were not logged.
type leftOut struct {
	next   slog.Handler
	level  slog.Level
	line   string
	tenant []slog.Attr
	peer   string
	count  uint64
	timer  *time.Timer
}

// NewPacedLog limits the lines that go to next. Close logs the last counts.
func NewPacedLog(next slog.Handler) *PacedLog {
	return &PacedLog{next: next, paces: &logPaces{causes: map[string]*bucket{}, peers: map[string]*bucket{}, leftOut: map[string]*leftOut{}}}
}

// Enabled implements slog.Handler.
func (h *PacedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h *PacedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	of := *h
	of.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		switch a.Key {
		case "pid": // it differs for each connection
		case "uid":
			of.peer = a.Value.String()
		default:
			of.cause += a.Key + "=" + a.Value.String() + " "
		}
		of.said = of.said || a.Key == "process" && a.Value.String() == "driver"
	}
	return &of
}

// WithGroup implements slog.Handler.
func (h *PacedLog) WithGroup(name string) slog.Handler {
	of := *h
	of.next = h.next.WithGroup(name)
	of.cause += name + "."
	return &of
}

// Handle implements slog.Handler.
func (h *PacedLog) Handle(ctx context.Context, r slog.Record) error {
	cause, peer := h.cause, h.peer
	var tenant []slog.Attr // attributes of the line, not of its logger
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "uid":
			peer = a.Value.String()
		case "tenant":
			tenant = append(tenant, a)
			cause += a.Key + "=" + a.Value.String() + " "
		}
		return true
	})
	if h.paces.enter(cause+"\x00"+r.Message, peer, h.said, leftOut{next: h.next, level: r.Level, line: r.Message, tenant: tenant}) {
		return h.next.Handle(ctx, r)
	}

	return nil
}

// enter reports whether a line is logged, and counts it if it is not.
func (p *logPaces) enter(cause, peer string, driver bool, line leftOut) bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return true
	}

	burst, interval := causeBurst, causeInterval
	if driver {
		burst, interval = driverBurst, driverInterval
	}

	ofCause, cause := pacedBy(p.causes, maxCauses, cause, burst, interval, now)
	allowed := true
	if peer != "" {
		var ofPeer *bucket
		ofPeer, peer = pacedBy(p.peers, maxPeers, cause+"\x00"+peer, peerBurst, peerInterval, now)
		peer = peer[strings.LastIndexByte(peer, 0)+1:]
		allowed = ofPeer.allow(now)
	}

	if allowed && ofCause.allow(now) {
		return true
	}

	line.peer = peer
	p.countLocked(cause+"\x00"+peer, line)
	return false
}

// pacedBy returns the bucket of a name, or the shared one if there are too many names.
func pacedBy(all map[string]*bucket, most int, name string, burst int, interval time.Duration, now time.Time) (*bucket, string) {
	if b := all[name]; b != nil {
		return b, name
	}

	if len(all) >= most {
		for n, b := range all { // a full bucket is the same as a new one
			if b.wait(now) == 0 && b.credit == b.full {
				delete(all, n)
			}
		}
	}

	if len(all) >= most {
		if name = "others"; all[name] != nil {
			return all[name], name
		}
	}

	b := newBucket(burst, interval, now)
	all[name] = &b
	return &b, name
}

// countLocked counts a line. The count is logged after leftOutAfter.
//
// +checklocks:p.mu
func (p *logPaces) countLocked(key string, line leftOut) {
	l := p.leftOut[key]
	if l == nil {
		l = &line
		p.leftOut[key] = l
		p.telling.Add(1)
		l.timer = time.AfterFunc(leftOutAfter, func() {
			defer p.telling.Done()
			p.tell(key)
		})
	}
	l.count++
	l.level = max(l.level, line.level)
}

// tell logs a count.
func (p *logPaces) tell(key string) {
	p.mu.Lock()
	l := p.leftOut[key]
	delete(p.leftOut, key)
	p.mu.Unlock()
	if l == nil {
		return
	}
	r := slog.NewRecord(time.Now(), l.level, "lines were left out", 0)
	r.AddAttrs(append(l.tenant, slog.String("like", l.line), slog.Uint64("lines", l.count))...)
	if l.peer != "" {
		r.AddAttrs(slog.String("uid", l.peer))
	}
	_ = l.next.Handle(context.Background(), r)
}

// Close logs the counts. Later lines are all logged.
func (h *PacedLog) Close() {
	p := h.paces
	p.mu.Lock()
	p.closed = true
	var keys []string
	for key, l := range p.leftOut {
		if l.timer.Stop() {
			p.telling.Done()
			keys = append(keys, key)
		}
	}
	p.mu.Unlock()
	for _, key := range keys {
		p.tell(key)
	}

	p.telling.Wait()
}
