package server

import (
	"context"
	"time"

	"capgpu/client"
)

// engine is the server's interface to a model on a device. llama.Model is one
// (device.go), the tests have another. Only one goroutine uses it.
type engine interface {
	size() size
	newSequence() (sequence, error)
	// step runs the rows in one pass. Rows of a sequence have ascending positions,
	// and all earlier positions were run before.
	step(ctx context.Context, rows []row) error
	// logits are those of the i-th row of the last step that asked for them, until
	// the next call. An error means that they are lost, and why there are no more
	// passes.
	logits(i int) ([]float32, error)
	// greedy continues from token at position with the most likely tokens, n at
	// most, until yield returns false.
	greedy(ctx context.Context, q sequence, token int32, position, n int, yield func(token int32) bool) error
	// embed fills out with the vector of the tokens.
	embed(ctx context.Context, q sequence, tokens []int32, out []float32) error
	// broken returns why there are no more passes; nil while there are.
	broken() error
	// deviceTime is the cost of its work so far, as charged.
	deviceTime() time.Duration
}

// sequence is a row of the page table, and its pages.
type sequence interface {
	// Reserve makes sure that the first positions have pages; gpuerr.Quota if none
	// are left.
	Reserve(positions int) error
	Close() // frees pages and row at once
}

// row is one token of a pass.
type row struct {
	seq      sequence
	position int
	token    int32
	logits   bool
}

// size is the capacity of an engine.
type size struct {
	sequences     int // at a time
	context       int // positions of one
	batch         int // most rows of a pass
	pages         int
	pagePositions int // of each
}

// pagesOf is the number of pages that hold these positions.
func (z size) pagesOf(positions int) int {
	return (positions + z.pagePositions - 1) / z.pagePositions
}

// positions is the largest number of positions of one request.
func (z size) positions() int { return min(z.context, z.pages*z.pagePositions) }

// place loads a model: a device of the service, or a test's substitute.
type place interface {
	// load waits for a device, opens a session and loads the model into it. If it
	// fails, Server.Run calls it again.
	load(ctx context.Context, progress func(done, total uint64)) (*loaded, error)
	// taken reports, for a revoked session, whether its device keeps running
	// without it.
	taken(ctx context.Context) bool
	close()
}

// loaded is a model in a session.
type loaded struct {
	engine
	device client.DeviceInfo
	over   <-chan struct{} // closed with the session
	why    func() error    // then
	budget func(ctx context.Context) ([]client.BudgetEntry, error)
	close  func(ctx context.Context)
}
