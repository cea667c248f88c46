// Package churn has clients that make, restrict, revoke and free at random, each in
// a process of its own that can be killed at any moment.
//
// The processes are this same program with a hidden first argument (RunIfWorker).
// Their parent stops them between two operations, and learns their holdings; the
// ledger and the kernel must agree with that.
package churn

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
)

const hidden = "dataplane-churn"

// Holds are the holdings of a worker. It reports them when it is stopped.
type Holds struct {
	Ops      int    `json:"ops"` // done since it was started
	Bytes    uint64 `json:"bytes"`
	Buffers  int    `json:"buffers"`
	Queues   int    `json:"queues"`
	Sessions int    `json:"sessions"`
	Err      string `json:"err,omitempty"` // why it ends
}

// Size bounds a worker's holdings.
type Size struct {
	Trees   int // sessions of the device
	Below   int // sessions restricted from one
	Buffers int // of one session
	// Sessions and Total make it fill up first, to about this many sessions and
	// buffers in all of them, and then keep about as much; 0: it does not.
	Sessions, Total int
	// Gate makes it speak Cap'n Proto, with one session and nothing below it.
	Gate bool
}

// Usual is the size of a worker that reaches nothing, and its maximum, now and
// then.
var Usual = Size{Trees: 4, Below: 3, Buffers: 48}

const (
	maxBytes = 3 << 19 // of a buffer: more than what is carved from shared pieces
	// sameBytes is a size that repeats, which the service makes in advance.
	sameBytes = 2 << 20
	// usualBytes bounds most buffers; fullBytes bounds those of full workers.
	usualBytes = 64 << 10
	fullBytes  = 8 << 10
)

// node is a session with its contents.
type node struct {
	session *client.Session
	parent  *node
	below   []*node
	buffers []*client.Buffer
	queue   *client.Queue
}

type worker struct {
	socket  string
	random  *rand.Rand
	size    Size
	trees   []*node
	nodes   int // sessions: in all trees
	buffers int // in all of them
	ops     int
}

// churner is a worker of either kind, which obey drives.
type churner interface {
	step() error
	forgetLost() // drops everything that was lost with a driver or a gate
	closeAll()
	holds() Holds
}

// RunIfWorker makes this process a worker if it was started as one, and then never
// returns.
func RunIfWorker() {
	if len(os.Args) != 5 || os.Args[1] != hidden {
		return
	}
	if err := runWorker(os.Args[2], os.Args[3], os.Args[4]); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(Holds{Err: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

func runWorker(socket, seed, size string) error {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	w := &worker{socket: socket, random: rand.New(rand.NewPCG(n, 0))}
	if err := json.Unmarshal([]byte(size), &w.size); err != nil {
		return err
	}
	if w.size.Gate {
		return obey(&gateWorker{socket: socket, random: w.random, most: w.size.Buffers})
	}
	return obey(w)
}

// obey executes the parent's commands: a line "N" is N operations, followed by a
// report of the holdings; "end" closes everything.
func obey(w churner) error {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			n = 0
			w.closeAll()
		}
		for range n {
			if err := w.step(); err != nil {
				return err
			}
		}
		w.forgetLost()
		if err := out.Encode(w.holds()); err != nil {
			return err
		}
	}

	return nil // the parent is gone
}

// opTimeout is far above the time of any operation.
const opTimeout = 20 * time.Second

func (w *worker) step() error {
	err := persist(w.operate, w.forgetLost)
	if err == nil {
		w.ops++
	}
	return err
}

// persist does one operation. If it fails because the driver was killed, it is
// repeated with the next driver, after forget.
func persist(operate func(context.Context) error, forget func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	for {
		err := operate(ctx)
		switch {
		case err == nil:
			return nil
		case !lost(err):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("the service does not come back: %w", err)
		}
		forget()
		time.Sleep(time.Millisecond)
	}
}

// lost reports that the driver is gone, or the next one not yet there.
func lost(err error) bool {
	for _, code := range []gpuerr.Code{gpuerr.DeviceLost, gpuerr.Disconnected, gpuerr.NoDevice, gpuerr.Busy, gpuerr.Revoked, gpuerr.Closed} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

func (w *worker) operate(ctx context.Context) error {
	if len(w.trees) == 0 {
		return w.open(ctx)
	}

	n := w.anyNode()
	switch fill := w.size.Total > 0; {
	case fill && len(w.trees) < w.size.Trees:
		return w.open(ctx)
	case fill && w.nodes < w.size.Sessions && w.random.IntN(8) > 0:
		return w.restrict(ctx, n)
	case fill && w.buffers < w.size.Total && w.random.IntN(8) > 0:
		return w.create(ctx, n)
	}

	switch r := w.random.IntN(100); {
	case r < 45:
		return w.create(ctx, n)
	case r < 80:
		return w.free(ctx, n)
	case r < 88:
		return w.work(ctx, n)
	case r < 93:
		if len(w.trees) < w.size.Trees {
			return w.open(ctx)
		}
		return w.restrict(ctx, n)
	case r < 97:
		return w.restrict(ctx, n)
	}

	return w.revoke(ctx, n)
}

func (w *worker) anyNode() *node {
	n := w.trees[w.random.IntN(len(w.trees))]
	for len(n.below) > 0 && w.random.IntN(2) == 0 {
		n = n.below[w.random.IntN(len(n.below))]
	}
	return n
}

func (w *worker) open(ctx context.Context) error {
	conn, err := client.Dial(ctx, w.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	w.trees = append(w.trees, &node{session: s})
	w.nodes++
	return nil
}

// create makes a buffer and touches all of it, so that the kernel counts as many
// pages of it as the ledger.
func (w *worker) create(ctx context.Context, n *node) error {
	if len(n.buffers) >= w.size.Buffers {
		return w.free(ctx, n)
	}

	most, seldom := usualBytes, 32
	if w.size.Total > 0 {
		most, seldom = fullBytes, 2048
	}

	bytes := uint64(1 + w.random.IntN(most))
	switch w.random.IntN(seldom) {
	case 0:
		bytes = uint64(1 + w.random.IntN(maxBytes))
	case 1:
		bytes = sameBytes
	}

	b, err := n.session.CreateBuffer(ctx, bytes, client.Storage)
	if err != nil {
		return err
	}

	mem, err := b.Map()
	if err != nil {
		return err
	}

	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}

	n.buffers = append(n.buffers, b)
	w.buffers++
	return b.Unmap()
}

func (w *worker) free(ctx context.Context, n *node) error {
	if len(n.buffers) == 0 {
		return w.create(ctx, n)
	}
	i := w.random.IntN(len(n.buffers))
	b := n.buffers[i]
	if err := b.Close(ctx); err != nil {
		return err
	}
	last := len(n.buffers) - 1
	n.buffers[i] = n.buffers[last]
	n.buffers = n.buffers[:last]
	w.buffers--
	return nil
}

// work fills a buffer on the device, which may be closing it at the same time.
func (w *worker) work(ctx context.Context, n *node) (err error) {
	if n.queue == nil {
		n.queue, err = n.session.CreateQueue(ctx, client.QueueOptions{Entries: 16, ArgBytes: 1024})
		return err
	}
	if len(n.buffers) == 0 {
		return nil
	}
	b := n.buffers[w.random.IntN(len(n.buffers))]
	fill := &client.Fill{Buffer: b, Bytes: b.Size() &^ 3, Pattern: w.random.Uint32()}
	if fill.Bytes == 0 {
		return nil
	}
	return n.queue.Run(ctx, fill)
}

// restrict makes a weaker session.
func (w *worker) restrict(ctx context.Context, n *node) error {
	if len(n.below) >= w.size.Below || w.size.Total > 0 && w.nodes >= w.size.Sessions {
		return nil
	}
	s, err := n.session.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
	if err != nil {
		if gpuerr.CodeOf(err) == gpuerr.Denied { // it is as deep as it may be
			return nil
		}
		return err
	}
	n.below = append(n.below, &node{session: s, parent: n})
	w.nodes++
	return nil
}

// revoke closes a session with all below it.
func (w *worker) revoke(ctx context.Context, n *node) error {
	if err := n.session.Close(ctx); err != nil {
		return err
	}
	w.drop(n)
	return nil
}
