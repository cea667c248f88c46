package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/schema"
)

// Client is the model of a remote server; it implements lm.Model. It trusts the
// server: it bounds and walks messages, but takes their values as they are.
type Client struct {
	conn     *rpc.Conn
	server   schema.ModelServer
	model    schema.LanguageModel
	embedder schema.Embedder
	info     lm.Info
}

var _ lm.Model = (*Client)(nil)

// askPatience bounds a call that the server can answer at once.
const askPatience = 10 * time.Second

// Dial connects to the socket of a model server. An error of the socket is both
// gpuerr.Disconnected and the system's own error.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gpuerr.Disconnected, err)
	}
	conn := rpc.NewConn(rpcguard.NewClientTransport(c.(*net.UnixConn)), nil)
	m := &Client{conn: conn, server: schema.ModelServer(conn.Bootstrap(ctx))}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if err := m.open(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Client) open(ctx context.Context) error {
	model, release := m.server.LanguageModel(ctx, nil)
	defer release()
	m.model = model.Model().AddRef()
	embedder, release := m.server.Embedder(ctx, nil)
	defer release()

	m.embedder = embedder.Embedder().AddRef()
	asked, release := m.model.Info(ctx, nil)
	defer release()
	res, err := asked.Struct()
	if err != nil {
		return fromServer(ctx, err)
	}

	info, err := res.Info()
	if err != nil {
		return err
	}

	m.info = lm.Info{
		Parameters: info.Parameters(), Bytes: info.Bytes(), Context: int(info.Context()),
		Vocab: int(info.Vocab()), Dim: int(info.Dim()),
	}

	if m.info.Name, err = info.Name(); err != nil {
		return err
	}
	if m.info.Format, err = info.Format(); err != nil {
		return err
	}

	stops, err := info.ChatStops()
	if err != nil {
		return err
	}

	for i := range stops.Len() {
		s, err := stops.At(i)
		if err != nil {
			return err
		}
		m.info.ChatStops = append(m.info.ChatStops, s)
	}

	return nil
}

// Close ends the connection, and all answers that have not ended.
func (m *Client) Close() error {
	m.embedder.Release()
	m.model.Release()
	m.server.Release()
	return m.conn.Close()
}

// Info implements lm.Model.
func (m *Client) Info() lm.Info { return m.info }

// Status implements lm.Model. A server that does not answer is Stopped, with the reason.
func (m *Client) Status() lm.Status {
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	s, err := m.status(ctx)
	if err != nil {
		return lm.Status{State: lm.Stopped, Reason: err.Error()}
	}
	return s
}

func (m *Client) status(ctx context.Context) (lm.Status, error) {
	asked, release := m.server.Status(ctx, nil)
	defer release()
	res, err := asked.Struct()
	if err != nil {
		return lm.Status{}, fromServer(ctx, err)
	}

	in, err := res.Status()
	if err != nil {
		return lm.Status{}, err
	}

	s := lm.Status{
		State: lm.State(in.State()), Loaded: in.Loaded(), Bytes: in.Bytes(),
		Running: int(in.Running()), Waiting: int(in.Waiting()),
	}

	if s.Reason, err = in.Reason(); err != nil {
		return lm.Status{}, err
	}

	d, err := in.Device()
	if err != nil {
		return lm.Status{}, err
	}

	s.Device = client.DeviceInfo{
		Index: d.Index(), State: client.DeviceState(d.State()), Epoch: d.Epoch(), MemoryBytes: d.MemoryBytes(),
		VendorID: d.VendorId(), DeviceID: d.DeviceId(), Facet: client.Facet(d.Facet()),
	}

	s.Device.Name, _ = d.Name()
	s.Device.Backend, _ = d.Backend()
	s.Device.PCIAddress, _ = d.PciAddress()
	budget, err := in.Budget()
	if err != nil {
		return lm.Status{}, err
	}

	for i := range budget.Len() {
		e := budget.At(i)
		name, _ := e.Resource()
		s.Budget = append(s.Budget, client.BudgetEntry{Resource: name, Used: e.Used(), Limit: e.Limit(), Peak: e.Peak()})
	}

	return s, nil
}

// Tokenize implements lm.Model.
func (m *Client) Tokenize(ctx context.Context, text string) ([]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	asked, release := m.model.Tokenize(ctx, func(p schema.LanguageModel_tokenize_Params) error { return p.SetText(text) })
	defer release()
	res, err := asked.Struct()
	if err != nil {
		return nil, fromServer(ctx, err)
	}
	list, err := res.Tokens()
	if err != nil {
		return nil, err
	}
	return ids(list), nil
}

// Chat implements lm.Model.
func (m *Client) Chat(ctx context.Context, messages []lm.Message) ([]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	asked, release := m.model.Chat(ctx, func(p schema.LanguageModel_chat_Params) error {
		list, err := p.NewMessages(int32(len(messages)))
		if err != nil {
			return err
		}
		for i, one := range messages {
			if err := errors.Join(list.At(i).SetRole(one.Role), list.At(i).SetContent(one.Content)); err != nil {
				return err
			}
		}
		return nil
	})

	defer release()
	res, err := asked.Struct()
	if err != nil {
		return nil, fromServer(ctx, err)
	}

	list, err := res.Tokens()
	if err != nil {
		return nil, err
	}

	return ids(list), nil
}

func ids(list capnp.Int32List) []int32 {
	out := make([]int32, list.Len())
	for i := range out {
		out[i] = list.At(i)
	}
	return out
}

// Embed implements lm.Model.
func (m *Client) Embed(ctx context.Context, texts []string) ([][]float32, lm.Usage, error) {
	asked, release := m.embedder.Embed(ctx, func(p schema.Embedder_embed_Params) error {
		list, err := p.NewTexts(int32(len(texts)))
		if err != nil {
			return err
		}
		for i, text := range texts {
			if err := list.Set(i, text); err != nil {
				return err
			}
		}
		return nil
	})

	defer release()
	res, err := asked.Struct()
	if err != nil {
		return nil, lm.Usage{}, fromServer(ctx, err)
	}

	rows, err := res.Embeddings()
	if err != nil {
		return nil, lm.Usage{}, err
	}

	vectors := make([][]float32, rows.Len())
	for i := range vectors {
		p, err := rows.At(i)
		if err != nil {
			return nil, lm.Usage{}, err
		}
		row := capnp.Float32List(p.List())
		vectors[i] = make([]float32, row.Len())
		for j := range vectors[i] {
			vectors[i][j] = row.At(j)
		}
	}

	u, err := res.Usage()
	return vectors, usage(u), err
}

// fromServer is the error of a call: ctx's own if ctx caused it.
func fromServer(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return rpcguard.FromException(err)
}
