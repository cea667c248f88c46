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

	line      *peers.Shares // of places to wait in, before a request has begun
	wake      chan struct{} // holds one: there may be work, or less of it
	attention atomic.Bool   // the same, for who decodes ahead
	reopen    chan struct{} // holds one: Reopen was called
	closing   chan struct{} // closed by Close
	first     chan struct{} // closed when the model was loaded for the first time
	ran       chan struct{} // closed when Run has returned
	runErr    error         // what Run returned

	mu       sync.Mutex
	started  bool // guarded by mu, as all that follows
	state    lm.State
	reason   string
	refuse   error // what Generate answers; nil: requests are taken
	quiet    chan struct{}
	stopped  bool // Close was called
	device   client.DeviceInfo
	budget   []client.BudgetEntry // as last heard
	budgetAt time.Time
	loading  struct{ done, total uint64 }
	live     *loaded // nil: no model is loaded
	size     size    // of live, or the last one, or what is planned
	totals   lm.Totals

	shares  fair[*request] // of the passes; those that wait are in its lines
	running []*request     // the oldest first
	parked  []*request     // the longest first
	unread  []*request     // ended, with tokens that nobody has pulled; the longest first
}

var _ lm.Model = (*Server)(nil)

// newServer is New of the parts.
func newServer(o Options, info lm.Info, words *tokenizer.Tokenizer, p place, planned size) *Server {
	return &Server{
		o: o, place: p, info: info, words: words, texts: newTextPlaces(), line: peers.NewShares(int64(o.Waiting)), size: planned,
		wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1), closing: make(chan struct{}), first: make(chan struct{}), ran: make(chan struct{}),
		refuse: errLoading, reason: "not begun",
	}
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
	s.totals.Requests++
	r.turn = s.shares.put(r.who, r)
	r.detach = context.AfterFunc(ctx, r.cancel)
	s.wakeLocked()
	return nil
}

// Embed implements lm.Model. One text at a time is in the line.
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
		<-r.released
		if r.err != nil {
			return nil, u, r.err
		}
		if r.finish == lm.Cancelled {
			return nil, u, ctx.Err()
		}
		vectors[i] = r.embed
		u.PromptTokens += r.counted.PromptTokens
		u.Queued += r.counted.Queued
		u.Prefill += r.counted.Prefill
		u.DeviceTime += r.counted.DeviceTime
	}
	return vectors, u, nil
}

// Status implements lm.Model.
func (s *Server) Status() lm.Status {
	s.mu.Lock()
	live := s.live
	stale := time.Since(s.budgetAt) > budgetAge
	s.mu.Unlock()
	if live != nil && stale {
		ctx, cancel := context.WithTimeout(context.Background(), budgetPatience)
		budget, err := live.budget(ctx)
		cancel()
		s.mu.Lock()
		s.budgetAt = time.Now() // also where nobody answered: who asks next does not wait again
		if err == nil {
			s.budget = budget
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, reason := s.state, s.reason
	if state == lm.Ready && s.quiet != nil {
		state, reason = lm.Stopped, errStopping.Error()
	}
	return lm.Status{
		State: state, Reason: reason, Device: s.device, Budget: s.budget,
		Loaded: s.loading.done, Bytes: s.loading.total,
		Running: len(s.running), Waiting: s.shares.all.use.waiting + len(s.parked),
		PagesUsed: s.shares.all.use.pages, Pages: s.size.pages, PagePositions: s.size.pagePositions,
		Totals: s.totals,
	}
}

// budgetAge is for how long a budget is told without asking again.
const budgetAge = 200 * time.Millisecond

// budgetPatience is how long Status waits for the driver's word; then it tells the last one.
const budgetPatience = 250 * time.Millisecond

func (s *Server) room() size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Drain takes no more requests (gpuerr.Closed) and waits until those that there are have
// ended, or ctx has.
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

// quietLocked tells Drain when nothing is left.
func (s *Server) quietLocked() {
	if s.quiet == nil || s.shares.all.use.waiting+len(s.running)+len(s.parked) > 0 {
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
		close(s.closing)
	}
	if !started && !s.started {
		s.started = true // Run refuses from now on
		s.stopLocked(nil)
		close(s.ran)
	}
	s.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-s.ran:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Await waits until the model has been loaded for the first time: then it returns nil, or
// what Run returned where that came first (gpuerr.Closed for nil).
func (s *Server) Await(ctx context.Context) error {
	select {
	case <-s.first:
		return nil
	case <-s.ran:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-s.first: // both are so
		return nil
	default:
	}
	if s.runErr != nil {
		return s.runErr
	}
	return errStopping
}

// Reopen has the server open a new session after its own was revoked.
func (s *Server) Reopen() {
	s.mu.Lock()
	revoked := s.state == lm.Revoked
	s.mu.Unlock()
	if revoked {
		select {
		case s.reopen <- struct{}{}:
		default:
		}
	}
}

// wakeLocked has the runner look again.
func (s *Server) wakeLocked() {
	s.attention.Store(true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
