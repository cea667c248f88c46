package peers

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service of gRPC and ttrpc: bytes there, the same bytes back.
const (
	echoService = "capgpu.bench.Echo"
	echoMethod  = "Echo"
)

func serveGRPC(socket string) error {
	l, err := listen(socket)
	if err != nil {
		return err
	}

	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: echoService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: echoMethod, Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			return &in, nil
		}}},
	}, struct{}{})

	return s.Serve(l)
}

func dialGRPC(socket string) (call, disconnect func() error, err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	in := &wrapperspb.BytesValue{Value: make([]byte, PayloadBytes)}
	return func() error {
		var out wrapperspb.BytesValue
		return conn.Invoke(context.Background(), "/"+echoService+"/"+echoMethod, in, &out)
	}, conn.Close, nil
}
