package server

import (
	"context"
	"time"

	"capgpu/client"
)

// engine is what the server needs of a model on a device. llama.Model is one (device.go),
// the tests have another. One goroutine uses it.
type engine interface {
	size() size
	newSequence() (sequence, error)
	// step runs the rows in one pass: of each sequence ascending positions, all those
	// before them having been run.
	step(ctx context.Context, rows []row) error
	// logits are those of the i-th row of the last step that asked for them, until the next
	// call. An error says that they are lost, and why there are no more passes.
	logits(i int) ([]float32, error)
	// greedy goes on from token at position with the most likely tokens, n at most, until
	// yield says false.
	greedy(ctx context.Context, q sequence, token int32, position, n int, yield func(token int32) bool) error
	// embed fills out with the vector of the tokens.
	embed(ctx context.Context, q sequence, tokens []int32, out []float32) error
	// broken says why there are no more passes; nil while there are.
	broken() error
	// deviceTime is what its work has cost so far, as charged.
	deviceTime() time.Duration
}

// sequence is a row of the page table, and its pages.
type sequence interface {
	// Reserve makes sure that the first positions have pages; gpuerr.Quota where none are
	// left.
	Reserve(positions int) error
	Close() // pages and row are free at once
}

// row is one token of a pass.
type row struct {
	seq      sequence
	position int
	token    int32
	logits   bool
}

// size is what an engine has room for.
type size struct {
	sequences     int // at a time
	context       int // positions of one
	batch         int // most rows of a pass
	pages         int
	pagePositions int // of each
}

// pagesOf is how many pages hold so many positions.
func (z size) pagesOf(positions int) int {
	return (positions + z.pagePositions - 1) / z.pagePositions
}

// positions is how many one request can have.
func (z size) positions() int { return min(z.context, z.pages*z.pagePositions) }

// place is where a model is loaded: a device of the service, or what a test has instead.
type place interface {
	// load waits until there is a device, opens a session and loads the model into it.
	// From retries it is called again and again; see Server.Run.
	load(ctx context.Context, progress func(done, total uint64)) (*loaded, error)
	// taken says, of a session that was revoked, whether its device goes on without it.
	taken(ctx context.Context) bool
	close()
}

// loaded is a model in a session.
type loaded struct {
	engine
	device client.DeviceInfo
	over   <-chan struct{} // closed when the session is
	why    func() error    // then
	budget func(ctx context.Context) ([]client.BudgetEntry, error)
	close  func(ctx context.Context)
}
