package peers

import (
	"context"
	"net"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func serveTTRPC(socket string) error {
	l, err := listen(socket)
	if err != nil {
		return err
	}

	s, err := ttrpc.NewServer()
	if err != nil {
		return err
	}

	s.RegisterService(echoService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		echoMethod: func(_ context.Context, decode func(any) error) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			return &in, nil
		},
	}})

	return s.Serve(context.Background(), l)
}

func dialTTRPC(socket string) (call, disconnect func() error, err error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	client := ttrpc.NewClient(c)
	in := &wrapperspb.BytesValue{Value: make([]byte, PayloadBytes)}
	return func() error {
		var out wrapperspb.BytesValue
		return client.Call(context.Background(), echoService, echoMethod, in, &out)
	}, client.Close, nil
}
