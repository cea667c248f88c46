package server

import (
	"context"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/chat"
	"capgpu/model/llama"
	"capgpu/model/lm"
)

// New checks the options and the model. Nothing is asked of the service before Run.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	switch {
	case o.Dial == nil:
		return nil, gpuerr.New(gpuerr.Invalid, "dial: there is none")
	case o.File == nil || o.File.Tokenizer == nil:
		return nil, gpuerr.New(gpuerr.Invalid, "file: there is none, or it has no tokenizer")
	}
	if o.Name == "" {
		o.Name = o.File.Name
	}
	c := &o.File.Config
	if v := o.File.Tokenizer.Vocab(); v != c.Vocab {
		return nil, gpuerr.New(gpuerr.Invalid, "file: the tokenizer has %d tokens, and the model %d", v, c.Vocab)
	}
	template, err := chat.New(o.File.Template, o.File.Tokenizer)
	if err != nil {
		return nil, err
	}
	plan, err := llama.Plan(o.File, o.Llama)
	if err != nil {
		return nil, err
	}
	p := &devicePlace{o: &o}
	z := size{sequences: o.Llama.Sequences, context: o.Llama.Context, batch: o.Llama.Batch, pagePositions: o.Llama.PagePositions, pages: plan.Pages}
	if z.context == 0 {
		z.context = c.Context
	}
	if z.pagePositions == 0 {
		z.pagePositions = llama.DefaultPagePositions
	}
	s := newServer(o, lm.Info{
		Name: o.Name, Format: o.File.Format, Parameters: plan.Parameters, Bytes: plan.WeightBytes,
		Context: z.context, Vocab: c.Vocab, Dim: c.Dim, Created: time.Now(), ChatStops: template.Stops(),
	}, o.File.Tokenizer, p, z)
	s.chat = template.EncodeMost
	s.loading.total = plan.WeightBytes
	return s, nil
}

// devicePlace is a device of the service.
//
// What it holds is the goroutine's of Run.
type devicePlace struct {
	o     *Options
	conn  *client.Conn
	epoch uint64 // of the last session, or the last that NextState told of
}

// followFor is how long one look at the state of a device that cannot be opened lasts.
const followFor = 200 * time.Millisecond

// successorFor is how long one wait for the next driver lasts.
const successorFor = 5 * time.Second

// dialPatience is how long the service may take to say who it is.
const dialPatience = 10 * time.Second

func (p *devicePlace) load(ctx context.Context, progress func(done, total uint64)) (*loaded, error) {
	session, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	l, err := p.loadInto(ctx, session, progress)
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer cancel()
		_ = session.Close(ctx) // or with its socket
		return nil, err
	}
	return l, nil
}

// dial connects to the service, if it has gone or was never met.
func (p *devicePlace) dial(ctx context.Context) error {
	if p.conn != nil {
		select {
		case <-p.conn.Done():
			p.close()
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	conn, err := p.o.Dial(ctx)
	if err != nil {
		return err
	}
	p.conn, p.epoch = conn, 0
	return nil
}

// open opens a session as soon as the device is ready, or says what the matter is.
func (p *devicePlace) open(ctx context.Context) (*client.Session, error) {
	if err := p.dial(ctx); err != nil {
		return nil, err
	}
	for {
		session, err := p.openOnce(ctx)
		if err == nil {
			p.epoch = session.Epoch()
			return session, nil
		}
		if !passing(err) || ctx.Err() != nil {
			return nil, err
		}
		st, told := p.conn.NextStateFor(ctx, p.o.Device, p.epoch, followFor)
		switch {
		case told != nil || !st.Changed:
			return nil, err
		case st.State == client.Wedged:
			return nil, gpuerr.New(gpuerr.DeviceLost, "the device is given up, and an operator has to act: %s", st.Cause)
		}
		if p.epoch = st.Epoch; st.State != client.Ready {
			if st, told = p.conn.NextStateFor(ctx, p.o.Device, p.epoch, successorFor); told != nil || st.State != client.Ready {
				return nil, err
			}
			p.epoch = st.Epoch
		}
	}
}

func (p *devicePlace) openOnce(ctx context.Context) (*client.Session, error) {
	if p.o.Session != nil {
		return p.o.Session(ctx, p.conn)
	}
	return p.conn.Open(ctx, p.o.Device)
}

// loadInto loads the model into a session, which is the caller's where that fails.
func (p *devicePlace) loadInto(ctx context.Context, s *client.Session, progress func(done, total uint64)) (*loaded, error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, err
	}
	o := p.o.Llama
	o.Progress = progress
	m, err := llama.Load(ctx, s, p.o.File, o)
	if err != nil {
		return nil, err
	}
	e := &llamaEngine{m: m, z: sizeOf(m)}
	conn := p.conn
	return &loaded{
		engine: e, device: p.deviceOf(ctx, d.Device), over: s.Done(), why: s.Err,
		budget: func(ctx context.Context) ([]client.BudgetEntry, error) { return budgetOf(ctx, s, conn, p.o.Device) },
		close: func(ctx context.Context) {
			if err := m.Close(ctx); err != nil { // also of a session that is over: memory is mapped
				p.o.Log.Warn("close the model", "err", err)
			}
			if err := s.Close(ctx); err != nil {
				p.o.Log.Warn("close the session", "err", err)
			}
		},
	}, nil
}

// deviceOf is the device as the service lists it; else as the session tells it.
func (p *devicePlace) deviceOf(ctx context.Context, d client.DeviceInfo) client.DeviceInfo {
	all, err := p.conn.Devices(ctx)
	if err != nil {
		return d
	}
	for _, one := range all {
		if one.Index == p.o.Device {
			return one
		}
	}
	return d
}

// takenAfter is how long a service that stops may take, from the end of its sessions, to
// be gone itself.
const takenAfter = 2 * time.Second

func (p *devicePlace) taken(ctx context.Context) bool {
	if p.conn == nil {
		return false
	}
	st, err := p.conn.NextStateFor(ctx, p.o.Device, p.epoch, takenAfter)
	return err == nil && !st.Changed && st.State == client.Ready && st.Epoch == p.epoch
}

func (p *devicePlace) close() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}
