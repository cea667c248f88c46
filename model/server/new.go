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

// New checks the options and the model. It asks nothing of the service before Run.
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
	s.status.loading.total = plan.WeightBytes
	return s, nil
}

// devicePlace is a device of the service.
//
// Its fields belong to the goroutine of Run.
type devicePlace struct {
	o     *Options
	conn  *client.Conn
	epoch uint64 // of the last session, or the last one that NextState reported
}

// followFor is the duration of one watch on a device that cannot be opened.
const followFor = 200 * time.Millisecond

// successorFor is the duration of one wait for the next driver.
const successorFor = 5 * time.Second

// dialPatience limits how long the service may take to identify itself.
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
		_ = session.Close(ctx) // or it closes with its socket
		return nil, err
	}
	return l, nil
}

// dial connects to the service, if it was lost or never reached.
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

// open opens a session as soon as the device is ready, or returns why it cannot.
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

		st, stateErr := p.conn.NextStateFor(ctx, p.o.Device, p.epoch, followFor)
		switch {
		case stateErr != nil || !st.Changed:
			return nil, err
		case st.State == client.Wedged:
			return nil, gpuerr.New(gpuerr.DeviceLost, "the device is given up, and an operator has to act: %s", st.Cause)
		}

		if p.epoch = st.Epoch; st.State != client.Ready {
			if st, stateErr = p.conn.NextStateFor(ctx, p.o.Device, p.epoch, successorFor); stateErr != nil || st.State != client.Ready {
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

// loadInto loads the model into a session. On an error the caller still owns the
// session.
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
			if err := m.Close(ctx); err != nil { // also when the session is over: memory is mapped
				p.o.Log.Warn("close the model", "err", err)
			}
			if err := s.Close(ctx); err != nil {
				p.o.Log.Warn("close the session", "err", err)
			}
		},
	}, nil
}

// deviceOf is the device as the service lists it, or else as the session describes
// it.
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

// takenAfter limits how long a stopping service may take from the end of its
// sessions to its own end.
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
