package lm

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/model/sample"
)

// Model is a language model, and an embedder. All methods may be called from any
// goroutine. Who asks is in the context: see WithAsker.
type Model interface {
	// Info is what does not change.
	Info() Info
	// Status is how it is now.
	Status() Status
	// Generate queues a request. It returns once the request is accepted or refused.
	Generate(ctx context.Context, r Request) (Stream, error)
	// Embed is a vector of Info.Dim of length 1 for each text.
	Embed(ctx context.Context, texts []string) (vectors [][]float32, u Usage, err error)
	// Tokenize is the tokens of a prompt, with the model's beginning where it has one.
	// More than the context has positions are gpuerr.Invalid.
	Tokenize(ctx context.Context, prompt string) ([]int32, error)
	// Chat is the prompt for a conversation, after the model's template or, where it
	// has none, after a plain one; bounded likewise.
	Chat(ctx context.Context, messages []Message) ([]int32, error)
}

// Message is one of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant"
	Content string `json:"content"`
}

// Info is what does not change about a model.
type Info struct {
	Name       string
	Format     string // of its file
	Parameters uint64
	Bytes      uint64 // of weights in device memory
	Context    int    // positions of one request: prompt and answer
	Vocab, Dim int
	Created    time.Time
	// ChatStops end an answer to what Chat made, where no token does: who asks for one
	// adds them to Request.Stop.
	ChatStops []string
}

// State is whether requests are served.
type State uint8

const (
	Loading    State = iota
	Ready            // requests are served
	Recovering       // the device went; the model loads again when it is back
	Revoked          // the session was taken away for good
	Stopped
)

var stateNames = [...]string{"loading", "ready", "recovering", "revoked", "stopped"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Status is how the model is now.
type Status struct {
	State  State
	Reason string // why it is not Ready
	Device client.DeviceInfo
	Budget []client.BudgetEntry // of the session
	// Of loading: bytes in device memory, and in all.
	Loaded, Bytes uint64
	// Requests that have a place and those that wait for one.
	Running, Waiting int
	// Pages of the cache of keys and values, of PagePositions positions each.
	PagesUsed, Pages, PagePositions int
	Totals                          Totals
}

// Totals counts since the start.
type Totals struct {
	Requests, Finished, Cancelled, Failed uint64
	PromptTokens, CompletionTokens        uint64
	Steps                                 uint64        // passes through the model
	Busy                                  time.Duration // of them
	Recoveries                            uint64        // times it was loaded again
}

// The bounds of a request.
const (
	MaxLogProbs  = 20
	MaxStops     = 16
	MaxStopBytes = 256
)

// Request is a text to go on with.
type Request struct {
	Prompt    string  // unless Tokens is set
	Tokens    []int32 // the prompt, beginning included
	MaxTokens int     // of the answer; 0: as many as the context has room for
	Sampling  sample.Params
	Stop      []string // the answer ends before the first of these; at most MaxStops of 1 to MaxStopBytes bytes
	LogProbs  int      // how many alternatives of each token to tell, at most MaxLogProbs; negative: not even its own
	Echo      bool     // tell the prompt first
	// IgnoreEnd goes on after the token that ends a text.
	IgnoreEnd bool
}

// Token is one step of an answer.
type Token struct {
	ID int32
	// Text is what it adds to the answer. It is whole UTF-8; a character in several
	// tokens comes with the last of them. Text that may be the start of a stop string
	// comes once it is known not to be.
	Text    string
	LogProb float32       // if asked for
	Top     []Alternative // the most likely, if asked for
}

// Alternative is a token that could have been.
type Alternative struct {
	ID      int32
	Text    []byte
	LogProb float32
}

// Finish is why an answer ended.
type Finish uint8

const (
	Unfinished Finish = iota
	Stop              // a stop string, or the token that ends a text
	Length            // MaxTokens, or the end of the context
	Cancelled
)

var finishNames = [...]string{"", "stop", "length", "cancelled"}

func (f Finish) String() string {
	if int(f) < len(finishNames) {
		return finishNames[f]
	}
	return "unknown"
}

// Usage is what a request cost.
type Usage struct {
	PromptTokens, CompletionTokens int
	Queued                         time.Duration // before its first pass
	Prefill, Decode                time.Duration
	DeviceTime                     time.Duration // its share, as charged
}

// Stream is an answer that is being made.
type Stream interface {
	// Next waits for tokens and returns those that are there, at least one and at most
	// len(out). After the last it returns 0 and io.EOF, and Finish and Usage are
	// final. A second caller waits for the first.
	Next(ctx context.Context, out []Token) (int, error)
	Finish() Finish
	Usage() Usage
	// Close cancels what has not ended, and returns when it holds nothing any more.
	Close() error
}
