package clients

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model/lm"
	api "capgpu/model/openai"
)

// startFake serves a model that computes nothing on loopback, with a token.
func startFake(t *testing.T, m lm.Model) (url string) { return startServer(t, m, token) }

func startServer(t *testing.T, m lm.Model, token string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := api.NewServer(api.New(m, api.Options{Token: token}), nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(api.Limit(l, 64)) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		<-done
	})
	return "http://" + l.Addr().String()
}
