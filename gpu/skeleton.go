package gpu

import (
	"context"

	"capgpu/gpu/backend"
	"capgpu/ledger"
)

type Device struct{}

func New(cfg Config) (*Device, error)                            { panic("not yet") }
func (d *Device) OpenSession(a Attach) (*Session, error)         { panic("not yet") }
func (d *Device) Status(tenant string) Status                    { panic("not yet") }
func (d *Device) SetTenantLimits(tenant string, l ledger.Limits) { panic("not yet") }
func (d *Device) Lost() <-chan struct{}                          { panic("not yet") }
func (d *Device) Err() error                                     { panic("not yet") }
func (d *Device) Close(ctx context.Context) error                { panic("not yet") }
func (d *Device) Check() error                                   { panic("not yet") }

type Status struct{}

type Session struct{}

func (s *Session) Describe() Description  { panic("not yet") }
func (s *Session) Budget() []ledger.Entry { panic("not yet") }
func (s *Session) CreateBuffer(ctx context.Context, bytes uint64, usage Usage) (BufferInfo, error) {
	panic("not yet")
}
func (s *Session) DestroyBuffer(h Handle) error               { panic("not yet") }
func (s *Session) CreateFence(initial uint64) (Handle, error) { panic("not yet") }
func (s *Session) DestroyFence(h Handle) error                { panic("not yet") }
func (s *Session) FenceState(h Handle) (FenceState, error)    { panic("not yet") }
func (s *Session) WaitFence(ctx context.Context, h Handle, value uint64) (FenceState, error) {
	panic("not yet")
}
func (s *Session) SignalFence(h Handle, value uint64) error { panic("not yet") }
func (s *Session) OpenProgram(name string) (Handle, backend.ProgramInfo, error) {
	panic("not yet")
}
func (s *Session) LoadProgram(ctx context.Context, bundle []byte) (Handle, backend.ProgramInfo, error) {
	panic("not yet")
}
func (s *Session) CloseProgram(h Handle) error                             { panic("not yet") }
func (s *Session) CreateQueue(entries, argBytes uint32) (QueueInfo, error) { panic("not yet") }
func (s *Session) CancelQueue(h Handle) error                              { panic("not yet") }
func (s *Session) CloseQueue(h Handle) error                               { panic("not yet") }
func (s *Session) Restrict(p Policy) (*Session, error)                     { panic("not yet") }
func (s *Session) Close() error                                            { panic("not yet") }
func (s *Session) Done() <-chan struct{}                                   { panic("not yet") }
func (s *Session) Err() error                                              { panic("not yet") }
