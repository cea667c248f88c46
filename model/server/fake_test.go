package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/tokenizer"
)

// The tests' vocabulary: nothing, begin, end, all bytes, and some words.
var testWords = func() *tokenizer.Tokenizer {
	s := tokenizer.Spec{Scheme: tokenizer.SentencePiece, BOS: 1, EOS: 2, EOT: -1, Unk: 0, AddBOS: true}
	add := func(text string, kind tokenizer.Kind) {
		s.Pieces = append(s.Pieces, tokenizer.Piece{Text: []byte(text), Kind: kind, Score: -float32(len(s.Pieces))})
	}

	add("<unk>", tokenizer.Unknown)
	add("<s>", tokenizer.Control)
	add("</s>", tokenizer.Control)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), tokenizer.Byte)
	}

	for _, w := range []string{"a", "b", "ab", "aba", "\u2581cat", "é", "\u2581", "dog", "\n"} {
		add(w, tokenizer.Normal)
	}

	t, err := tokenizer.New(s)
	if err != nil {
		panic(err)
	}

	return t
}()

const (
	testContext = 96
	testDim     = 8
	testEnd     = 2
)

// logitsOf is the tests' model: a hash of all tokens at their places decides the
// logits. Letters are likely, so that stop strings come, and so is the end.
func logitsOf(tokens []int32) []float32 {
	h := fnv.New64a()
	for i, t := range tokens {
		h.Write([]byte{byte(i), byte(i >> 8), byte(t), byte(t >> 8)})
	}

	x := h.Sum64()
	out := make([]float32, testWords.Vocab())
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = float32(int64(x>>40)%1000) / 250
		if i >= 259 {
			out[i] += 3
		}
	}

	out[testEnd] += 2
	return out
}

// fakeEngine is that model with a paged cache: it writes each row to the page that
// the table names, and reads from the pages what it computes with.
type fakeEngine struct {
	z         size
	pages     [][]int32 // tokens, by page; -1: nothing
	free      []int
	open      int // sequences
	opened    int // ever
	last      [][]float32
	over      chan struct{}
	cost      time.Duration // of a pass
	rowCost   time.Duration // and of each row of a step
	embedCost time.Duration // and of a text
	sizes     []int         // rows of each step
	damaged   bool          // it computes NaN
	device    time.Duration
	steps     int
	aheads    atomic.Int64 // tokens of greedy

	beforeLogits func()

	mu      sync.Mutex
	fail    error // of the next pass
	died    error // of all passes since
	overWhy error
}

func newFakeEngine(z size, cost time.Duration) *fakeEngine {
	e := &fakeEngine{z: z, over: make(chan struct{}), cost: cost}
	for i := range z.pages {
		e.pages = append(e.pages, make([]int32, z.pagePositions))
		e.free = append(e.free, i)
		e.scribble(i)
	}
	return e
}

func (e *fakeEngine) scribble(page int) {
	for i := range e.pages[page] {
		e.pages[page][i] = -1
	}
}

// kill ends the session.
func (e *fakeEngine) kill(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.overWhy == nil {
		e.overWhy = err
		close(e.over)
	}
}

// failNext makes the next pass fail, and all after it.
func (e *fakeEngine) failNext(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = err
}

type fakeSequence struct {
	e      *fakeEngine
	table  []int
	next   int
	closed bool
}

func (e *fakeEngine) size() size                { return e.z }
func (e *fakeEngine) deviceTime() time.Duration { return e.device }
func (e *fakeEngine) broken() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.died, e.overWhy)
}

func (e *fakeEngine) newSequence() (sequence, error) {
	if e.open == e.z.sequences {
		return nil, gpuerr.Refused("sequences", 1, 0)
	}
	e.open++
	e.opened++
	return &fakeSequence{e: e}, nil
}

func (q *fakeSequence) Reserve(positions int) error {
	if q.closed || positions > q.e.z.context {
		panic(fmt.Sprintf("reserve %d of a sequence (closed: %v)", positions, q.closed))
	}
	more := q.e.z.pagesOf(positions) - len(q.table)
	if more > len(q.e.free) {
		return gpuerr.Refused(ResourcePositions, uint64(more), uint64(len(q.e.free)))
	}
	for range more {
		q.table = append(q.table, q.e.free[0])
		q.e.free = q.e.free[1:]
	}
	return nil
}

func (q *fakeSequence) Close() {
	if q.closed {
		panic("a sequence is closed twice")
	}
	q.closed = true
	q.e.open--
	for _, p := range q.table {
		q.e.scribble(p)
		q.e.free = append(q.e.free, p)
	}
}

// pass takes its time and returns its result.
func (e *fakeEngine) pass(ctx context.Context) error {
	if e.died != nil {
		return e.died
	}

	select {
	case <-time.After(e.cost):
	case <-e.over:
	case <-ctx.Done():
	}

	e.device += e.cost
	e.steps++
	e.mu.Lock()
	defer e.mu.Unlock()

	if e.overWhy != nil {
		return e.overWhy
	}
	if e.fail != nil {
		e.fail, e.died = nil, e.fail
		return e.died
	}

	return ctx.Err()
}

func (q *fakeSequence) put(position int, token int32) {
	if q.closed || position > q.next || position >= len(q.table)*q.e.z.pagePositions {
		panic(fmt.Sprintf("position %d of a sequence with %d written in %d pages (closed: %v)", position, q.next, len(q.table), q.closed))
	}
	q.e.pages[q.table[position/q.e.z.pagePositions]][position%q.e.z.pagePositions] = token
	q.next = position + 1
}

func (q *fakeSequence) read(n int) []int32 {
	var out []int32
	for i := range n {
		out = append(out, q.e.pages[q.table[i/q.e.z.pagePositions]][i%q.e.z.pagePositions])
	}
	return out
}

func (e *fakeEngine) step(ctx context.Context, rows []row) error {
	if len(rows) == 0 || len(rows) > e.z.batch {
		panic(fmt.Sprintf("%d rows", len(rows)))
	}

	e.last = e.last[:0]
	time.Sleep(time.Duration(len(rows)) * e.rowCost)
	e.sizes = append(e.sizes, len(rows))
	if err := e.pass(ctx); err != nil {
		return err
	}

	for _, r := range rows {
		r.seq.(*fakeSequence).put(r.position, r.token)
	}

	for _, r := range rows {
		if r.logits {
			e.last = append(e.last, e.spoil(logitsOf(r.seq.(*fakeSequence).read(r.position+1))))
		}
	}

	return nil
}

// logits are scrubbed with the session.
func (e *fakeEngine) logits(i int) ([]float32, error) {
	if e.beforeLogits != nil {
		e.beforeLogits()
	}
	if err := e.broken(); err != nil {
		return make([]float32, len(e.last[i])), err
	}
	return e.last[i], nil
}

func (e *fakeEngine) greedy(ctx context.Context, s sequence, token int32, position, n int, yield func(int32) bool) error {
	q := s.(*fakeSequence)
	for i := range n {
		if err := e.pass(ctx); err != nil {
			return err
		}
		q.put(position+i, token)
		token = mostLikely(logitsOf(q.read(position + i + 1)))
		e.aheads.Add(1)
		if !yield(token) {
			return nil
		}
	}
	return nil
}

func mostLikely(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

func (e *fakeEngine) embed(ctx context.Context, s sequence, tokens []int32, out []float32) error {
	q := s.(*fakeSequence)
	time.Sleep(e.embedCost)
	if err := e.pass(ctx); err != nil {
		return err
	}
	for i, t := range tokens {
		q.put(i, t)
	}
	copy(out, e.spoil(vectorOf(q.read(len(tokens)))))
	return nil
}

func (e *fakeEngine) spoil(x []float32) []float32 {
	for i := range x {
		if e.damaged {
			x[i] = float32(math.NaN())
		}
	}
	return x
}

func vectorOf(tokens []int32) []float32 {
	v := logitsOf(tokens)[:testDim]
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}
