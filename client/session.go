package client

import (
	"context"
	"time"

	"capgpu/outcome"
)

// Session is the capability to use one device.
type Session struct{}

// NewSession speaks on a control socket of the given driver epoch; it takes
// ownership of fd, also when it fails.
func NewSession(fd int, epoch uint64) (*Session, error) { panic("client: not yet") }

func (s *Session) Describe(ctx context.Context) (Description, error) { panic("client: not yet") }
func (s *Session) Budget(ctx context.Context) ([]BudgetEntry, error) { panic("client: not yet") }
func (s *Session) Epoch() uint64                                     { panic("client: not yet") }
func (s *Session) Done() <-chan struct{}                             { panic("client: not yet") }
func (s *Session) Err() error                                        { panic("client: not yet") }
func (s *Session) Close(ctx context.Context) error                   { panic("client: not yet") }
func (s *Session) Restrict(ctx context.Context, p Policy) (*Session, error) {
	panic("client: not yet")
}
func (s *Session) CreateBuffer(ctx context.Context, bytes uint64, usage Usage) (*Buffer, error) {
	panic("client: not yet")
}
func (s *Session) CreateFence(ctx context.Context, initial uint64) (*Fence, error) {
	panic("client: not yet")
}
func (s *Session) OpenProgram(ctx context.Context, name string) (*Program, error) {
	panic("client: not yet")
}
func (s *Session) LoadProgram(ctx context.Context, bundle []byte) (*Program, error) {
	panic("client: not yet")
}
func (s *Session) CreateQueue(ctx context.Context, o QueueOptions) (*Queue, error) {
	panic("client: not yet")
}

// Buffer is device memory that is also in this process's reach.
type Buffer struct{}

func (b *Buffer) Handle() uint64                           { panic("client: not yet") }
func (b *Buffer) Size() uint64                             { panic("client: not yet") }
func (b *Buffer) Memory() (fd int, off, length uint64)     { panic("client: not yet") }
func (b *Buffer) Map() ([]byte, error)                     { panic("client: not yet") }
func (b *Buffer) Unmap() error                             { panic("client: not yet") }
func (b *Buffer) ReadAt(p []byte, off int64) (int, error)  { panic("client: not yet") }
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) { panic("client: not yet") }
func (b *Buffer) Close(ctx context.Context) error          { panic("client: not yet") }

// Fence is a 64-bit timeline.
type Fence struct{}

func (f *Fence) Handle() uint64                                 { panic("client: not yet") }
func (f *Fence) State(ctx context.Context) (FenceState, error)  { panic("client: not yet") }
func (f *Fence) Signal(ctx context.Context, value uint64) error { panic("client: not yet") }
func (f *Fence) Close(ctx context.Context) error                { panic("client: not yet") }

// Wait waits until the fence has reached value and returns that point's outcome.
// When ctx ends first it returns a pending outcome and ctx's error.
func (f *Fence) Wait(ctx context.Context, value uint64) (outcome.Outcome, error) {
	panic("client: not yet")
}

// WaitFor is Wait with the time limit as a result: when timeout is over it
// returns a state whose Outcome is pending, and no error.
func (f *Fence) WaitFor(ctx context.Context, value uint64, timeout time.Duration) (FenceState, error) {
	panic("client: not yet")
}

// Program is code that the session may launch.
type Program struct{}

func (p *Program) Handle() uint64                  { panic("client: not yet") }
func (p *Program) Info() ProgramInfo               { panic("client: not yet") }
func (p *Program) Close(ctx context.Context) error { panic("client: not yet") }

// Queue is an in-order command queue on a ring shared with the driver.
type Queue struct{}

// The Push methods stage one command and return its ticket; tickets of a queue
// ascend from 1. Nothing is seen by the driver before Flush.
func (q *Queue) PushLaunch(l *Launch) (uint64, error) { panic("client: not yet") }
func (q *Queue) PushCopy(c *Copy) (uint64, error)     { panic("client: not yet") }
func (q *Queue) PushFill(f *Fill) (uint64, error)     { panic("client: not yet") }
func (q *Queue) PushSignal(f *Fence, value uint64) (uint64, error) {
	panic("client: not yet")
}
func (q *Queue) PushWait(f *Fence, value uint64) (uint64, error) { panic("client: not yet") }
func (q *Queue) Flush() error                                    { panic("client: not yet") }

// Submit pushes commands, all or none, and flushes.
func (q *Queue) Submit(cmds ...Command) (first uint64, err error) { panic("client: not yet") }

// Completions waits for at least one completion and returns how many it put in out.
func (q *Queue) Completions(ctx context.Context, out []Completion) (int, error) {
	panic("client: not yet")
}
func (q *Queue) Handle() uint64                   { panic("client: not yet") }
func (q *Queue) Cancel(ctx context.Context) error { panic("client: not yet") }
func (q *Queue) Close(ctx context.Context) error  { panic("client: not yet") }

func (l *Launch) push(q *Queue) (uint64, error) { return q.PushLaunch(l) }
func (c *Copy) push(q *Queue) (uint64, error)   { return q.PushCopy(c) }
func (f *Fill) push(q *Queue) (uint64, error)   { return q.PushFill(f) }
func (s *Signal) push(q *Queue) (uint64, error) { return q.PushSignal(s.Fence, s.Value) }
func (w *Wait) push(q *Queue) (uint64, error)   { return q.PushWait(w.Fence, w.Value) }
