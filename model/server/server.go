package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/peers"
	"capgpu/model/tokenizer"
)

// Server shares one model among requests; it implements lm.Model. It serves while Run
// runs.
type Server struct {
	o     Options
	place place
	info  lm.Info
	words *tokenizer.Tokenizer
	chat  func(most int, messages []lm.Message) ([]int32, error)
	texts *textPlaces
	line  *peers.Shares // of places to wait in, before a request has begun

	// Signals to the goroutine of Run.
	signal struct {
		wake      chan struct{} // buffer of one: there may be work, or less of it
		attention atomic.Bool   // the same, for a run-ahead decode
		reopen    chan struct{} // buffer of one: Reopen was called
		closing   chan struct{} // closed by Close
	}

	// The progress of Run.
	run struct {
		loaded chan struct{} // closed when the model was loaded for the first time
		ended  chan struct{} // closed when Run has returned
		err    error         // what Run returned
	}

	// mu guards everything below.
	mu      sync.Mutex
	started bool
	stopped bool // Close was called
	quiet   chan struct{}
	refuse  error   // Generate's answer; nil: requests are accepted
	live    *loaded // nil: no model is loaded
	size    size    // of live, of the last one, or as planned

	// The values that Status reports.
	status struct {
		state    lm.State
		reason   string
		device   client.DeviceInfo
		budget   []client.BudgetEntry // as last read
		budgetAt time.Time
		loading  struct{ done, total uint64 }
		totals   lm.Totals
	}

	// The accepted requests.
	requests struct {
		shares  fair[*request] // of the running requests; waiting ones are in its lines
		running []*request     // the oldest first
		parked  []*request     // the longest first
		unread  []*request     // ended, with tokens that nobody has pulled; the oldest first
	}
}

var _ lm.Model = (*Server)(nil)

// newServer assembles a server.
func newServer(o Options, info lm.Info, words *tokenizer.Tokenizer, p place, planned size) *Server {
	s := &Server{
		o: o, place: p, info: info, words: words, texts: newTextPlaces(), line: peers.NewShares(int64(o.Waiting)),
		size: planned, refuse: errLoading,
	}
	s.signal.wake, s.signal.reopen, s.signal.closing = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	s.run.loaded, s.run.ended = make(chan struct{}), make(chan struct{})
	s.status.reason = "not begun"
	return s
}

var (
	errLoading  = gpuerr.New(gpuerr.Busy, "the model is being loaded; try again soon")
	errStopping = gpuerr.New(gpuerr.Closed, "the model server stops")
	errUnpulled = gpuerr.New(gpuerr.Busy, "nobody took the answer, and others needed its place")
)

// Info implements lm.Model.
func (s *Server) Info() lm.Info { return s.info }

// Generate implements lm.Model. The request is cancelled when ctx ends.
func (s *Server) Generate(ctx context.Context, q lm.Request) (lm.Stream, error) {
	r, err := s.newRequest(ctx, q)
	if err != nil {
		return nil, err
	}
	if err := s.accept(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// accept puts a request into the line.
func (s *Server) accept(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return s.refuse
	}
	if !s.line.Take(1, r.who.Peer, r.who.User) {
		return gpuerr.New(gpuerr.Busy, "of %d requests that may wait %d do, and your share is taken; try again when one of yours has begun", s.line.Most(), s.line.Held())
	}

	r.accepted = time.Now()
	s.status.totals.Requests++
	r.turn = s.requests.shares.put(r.who, r)
	r.out.detach = context.AfterFunc(ctx, r.cancel)
	s.wakeLocked()
	return nil
}

// Embed implements lm.Model. It puts one text at a time into the line.
func (s *Server) Embed(ctx context.Context, texts []string) ([][]float32, lm.Usage, error) {
	var u lm.Usage
	if len(texts) == 0 || len(texts) > maxTexts {
		return nil, u, gpuerr.New(gpuerr.Invalid, "texts: %d; there may be 1 to %d", len(texts), maxTexts)
	}

	all := make([]*request, len(texts))
	for i, text := range texts {
		var err error
		if all[i], err = s.newEmbedding(ctx, i, text); err != nil {
			return nil, u, err
		}
	}

	vectors := make([][]float32, len(texts))
	for i, r := range all {
		if err := s.accept(ctx, r); err != nil {
			return nil, u, err
		}
		<-r.out.released
		if r.out.err != nil {
			return nil, u, r.out.err
		}
		if r.out.finish == lm.Cancelled {
			return nil, u, ctx.Err()
		}
		vectors[i] = r.want.embed
		u.PromptTokens += r.out.counted.PromptTokens
		u.Queued += r.out.counted.Queued
		u.Prefill += r.out.counted.Prefill
		u.DeviceTime += r.out.counted.DeviceTime
	}

	return vectors, u, nil
}

// Status implements lm.Model.
func (s *Server) Status() lm.Status {
	s.mu.Lock()
	live := s.live
	stale := time.Since(s.status.budgetAt) > budgetAge
	s.mu.Unlock()
	if live != nil && stale {
		ctx, cancel := context.WithTimeout(context.Background(), budgetPatience)
		budget, err := live.budget(ctx)
		cancel()
		s.mu.Lock()
		s.status.budgetAt = time.Now() // also when nobody answered, so that the next caller does not wait again
		if err == nil {
			s.status.budget = budget
		}
		s.mu.Unlock()
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	state, reason := s.status.state, s.status.reason
	if state == lm.Ready && s.quiet != nil {
		state, reason = lm.Stopped, errStopping.Error()
	}

	return lm.Status{
		State: state, Reason: reason, Device: s.status.device, Budget: s.status.budget,
		Loaded: s.status.loading.done, Bytes: s.status.loading.total,
		Running: len(s.requests.running), Waiting: s.requests.shares.all.use.waiting + len(s.requests.parked),
		PagesUsed: s.requests.shares.all.use.pages, Pages: s.size.pages, PagePositions: s.size.pagePositions,
		Totals: s.status.totals,
	}
}

// budgetAge is the age at which a budget is read again.
const budgetAge = 200 * time.Millisecond

// budgetPatience limits how long Status waits for the driver's answer; then it
// returns the last one.
const budgetPatience = 250 * time.Millisecond

func (s *Server) room() size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Drain accepts no more requests (gpuerr.Closed) and waits until the accepted ones
// have ended, or ctx has.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.refuse = errStopping
	if s.quiet == nil {
		s.quiet = make(chan struct{})
		s.quietLocked()
	}
	quiet := s.quiet
	s.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quietLocked wakes Drain when nothing is left.
func (s *Server) quietLocked() {
	if s.quiet == nil || s.requests.shares.all.use.waiting+len(s.requests.running)+len(s.requests.parked) > 0 {
		return
	}
	select {
	case <-s.quiet:
	default:
		close(s.quiet)
	}
}

// Close ends all requests with gpuerr.Closed, and returns when Run has, or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	started := s.started
	if !s.stopped {
		s.stopped = true
		close(s.signal.closing)
	}

	if !started && !s.started {
		s.started = true // from now on Run refuses
		s.stopLocked(nil)
		close(s.run.ended)
	}

	s.mu.Unlock()
	if !started {
		return nil
	}

	select {
	case <-s.run.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Await waits until the model has been loaded for the first time, and then returns
// nil. If Run returns first, Await returns Run's error (gpuerr.Closed for nil).
func (s *Server) Await(ctx context.Context) error {
	select {
	case <-s.run.loaded:
		return nil
	case <-s.run.ended:
	case <-ctx.Done():
		return ctx.Err()
	}

	select {
	case <-s.run.loaded: // both are so
		return nil
	default:
	}

	if s.run.err != nil {
		return s.run.err
	}

	return errStopping
}

// Reopen makes the server open a new session after its own was revoked.
func (s *Server) Reopen() {
	s.mu.Lock()
	revoked := s.status.state == lm.Revoked
	s.mu.Unlock()
	if revoked {
		select {
		case s.signal.reopen <- struct{}{}:
		default:
		}
	}
}

// wakeLocked makes the runner check again.
func (s *Server) wakeLocked() {
	s.signal.attention.Store(true)
	select {
	case s.signal.wake <- struct{}{}:
	default:
	}
}
