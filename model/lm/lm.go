package lm

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/model/sample"
)

// Model is a language model, and an embedder. All methods may be called from any
// goroutine. The context names the asker: see WithAsker.
type Model interface {
	// Info describes the model; it does not change.
	Info() Info
	// Status is the current state.
	Status() Status
	// Generate queues a request. It returns once the request is accepted or refused.
	Generate(ctx context.Context, r Request) (Stream, error)
	// Embed returns a vector of Info.Dim elements and length 1 for each text.
	Embed(ctx context.Context, texts []string) (vectors [][]float32, u Usage, err error)
	// Tokenize returns the tokens of a prompt, with the model's beginning if it has
	// one. A prompt longer than the context is gpuerr.Invalid.
	Tokenize(ctx context.Context, prompt string) ([]int32, error)
	// Chat returns the prompt for a conversation, by the model's template or, if it
	// has none, by a plain one; bounded likewise.
	Chat(ctx context.Context, messages []Message) ([]int32, error)
}

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant"
	Content string `json:"content"`
}

// Info describes a model; it does not change.
type Info struct {
	Name       string
	Format     string // of its file
	Parameters uint64
	Bytes      uint64 // of weights in device memory
	Context    int    // positions of one request: prompt and answer
	Vocab, Dim int
	Created    time.Time
	// ChatStops end an answer to a prompt of Chat, if no token does. A caller that
	// generates from such a prompt adds them to Request.Stop.
	ChatStops []string
}

// State says whether requests are served.
type State uint8

const (
	Loading    State = iota
	Ready            // requests are served
	Recovering       // the device was lost; the model loads again when it is back
	Revoked          // the session was revoked for good
	Stopped
)

var stateNames = [...]string{"loading", "ready", "recovering", "revoked", "stopped"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Status is the current state of the model.
type Status struct {
	State  State
	Reason string // why it is not Ready
	Device client.DeviceInfo
	Budget []client.BudgetEntry // of the session
	// The progress of loading: bytes in device memory, and in all.
	Loaded, Bytes uint64
	// Requests with a place, and requests that wait for one.
	Running, Waiting int
	// Pages of the cache of keys and values, with PagePositions positions each.
	PagesUsed, Pages, PagePositions int
	Totals                          Totals
}

// Totals counts since the start.
type Totals struct {
	Requests, Finished, Cancelled, Failed uint64
	PromptTokens, CompletionTokens        uint64
	Steps                                 uint64        // passes through the model
	Busy                                  time.Duration // of them
	Recoveries                            uint64        // times that the model was loaded again
}

// The bounds of a request.
const (
	MaxLogProbs  = 20
	MaxStops     = 16
	MaxStopBytes = 256
)

// Request is a text to continue.
type Request struct {
	Prompt    string  // unless Tokens is set
	Tokens    []int32 // the prompt, beginning included
	MaxTokens int     // of the answer; 0: as many as fit the context
	Sampling  sample.Params
	Stop      []string // the answer ends before the first of these; at most MaxStops of 1 to MaxStopBytes bytes
	LogProbs  int      // number of alternatives to report for each token, at most MaxLogProbs; negative: not even its own probability
	Echo      bool     // deliver the prompt first
	// IgnoreEnd continues after the token that ends a text.
	IgnoreEnd bool
}

// Token is one step of an answer.
type Token struct {
	ID int32
	// Text is the token's addition to the answer. It is whole UTF-8; a character in
	// several tokens comes with the last of them. Text that may be the start of a
	// stop string comes once it is known not to be.
	Text    string
	LogProb float32       // if asked for
	Top     []Alternative // the most likely, if asked for
}

// Alternative is another possible token.
type Alternative struct {
	ID      int32
	Text    []byte
	LogProb float32
}

// Finish is the reason of an answer's end.
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

// Usage is the cost of a request.
type Usage struct {
	PromptTokens, CompletionTokens int
	Queued                         time.Duration // before its first pass
	Prefill, Decode                time.Duration
	DeviceTime                     time.Duration // its share, as charged
}

// Stream is an unfinished answer.
type Stream interface {
	// Next waits for tokens and returns those that are ready, at least one and at
	// most len(out). After the last it returns 0 and io.EOF, and Finish and Usage
	// are final. A second caller waits for the first.
	Next(ctx context.Context, out []Token) (int, error)
	Finish() Finish
	Usage() Usage
	// Close cancels an unfinished answer, and returns when it holds nothing any
	// more.
	Close() error
}
