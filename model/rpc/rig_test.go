package rpc

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm/lmtest"
	"capgpu/schema"
)

// rig is a model, its server, and a client.
type rig struct {
	t      *testing.T
	ctx    context.Context
	path   string
	model  *lmtest.Model
	server schema.ModelServer
	conn   *rpc.Conn
}

func newRig(t *testing.T, model *lmtest.Model) *rig {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, model: model, path: filepath.Join(t.TempDir(), "m.sock")}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path, Net: "unix"})
	require.NoError(t, err)
	serving, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Listen(serving, l, model, Options{}) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.Zero(t, model.Open(), "answers are left")
	})
	r.server, r.conn = r.dial()
	return r
}

// dial is another client.
func (r *rig) dial() (schema.ModelServer, *rpc.Conn) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	require.NoError(r.t, err)
	conn := rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	r.t.Cleanup(func() { conn.Close() })
	s := schema.ModelServer(conn.Bootstrap(r.ctx))
	r.t.Cleanup(s.Release)
	return s, conn
}

func await[F interface{ Struct() (R, error) }, R any](r *rig, f F, release capnp.ReleaseFunc) R {
	r.t.Helper()
	r.t.Cleanup(release)
	res, err := f.Struct()
	require.NoError(r.t, err)
	return res
}

func refused[F interface{ Struct() (R, error) }, R any](r *rig, code gpuerr.Code, f F, release capnp.ReleaseFunc) string {
	r.t.Helper()
	defer release()
	_, err := f.Struct()
	require.ErrorIs(r.t, rpcguard.FromException(err), code)
	return err.Error()
}

func (r *rig) languageModel() schema.LanguageModel {
	f, release := r.server.LanguageModel(r.ctx, nil)
	return await(r, f, release).Model()
}

type ask = func(q schema.GenerateRequest) error

// asked sets the parameters of a request.
func asked(fill ask) func(schema.LanguageModel_generate_Params) error {
	return func(p schema.LanguageModel_generate_Params) error {
		q, err := p.NewRequest()
		if err != nil {
			return err
		}
		return fill(q)
	}
}

func text(s string, maxTokens uint32) ask {
	return func(q schema.GenerateRequest) error {
		q.SetMaxTokens(maxTokens)
		return q.Prompt().SetText(s)
	}
}

func (r *rig) generate(fill ask) schema.TokenStream {
	r.t.Helper()
	f, release := r.languageModel().Generate(r.ctx, asked(fill))
	return await(r, f, release).Stream()
}

func (r *rig) next(s schema.TokenStream, most uint32, timeout time.Duration) schema.TokenStream_next_Results {
	r.t.Helper()
	f, release := s.Next(r.ctx, upTo(most, timeout))
	return await(r, f, release)
}

func upTo(most uint32, timeout time.Duration) func(schema.TokenStream_next_Params) error {
	return func(p schema.TokenStream_next_Params) error {
		p.SetMax(most)
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	}
}

// all pulls a stream to its end.
func (r *rig) all(s schema.TokenStream) (text string, last schema.TokenStream_next_Results) {
	r.t.Helper()
	for {
		last = r.next(s, 8, 10*time.Second)
		tokens, err := last.Tokens()
		require.NoError(r.t, err)
		for i := range tokens.Len() {
			t, err := tokens.At(i).Text()
			require.NoError(r.t, err)
			text += t
		}
		if last.Done() {
			return text, last
		}
	}
}
