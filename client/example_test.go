package client_test

import (
	"context"
	"fmt"

	"capgpu/client"
)

// A whole use of the service; examples/vecadd is this as a program.
func Example() {
	ctx := context.Background()
	if err := add(ctx, "/run/capgpu/default.sock"); err != nil {
		fmt.Println(err)
	}
}

func add(ctx context.Context, socket string) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	defer s.Close(ctx)

	launch := client.Launch{Bindings: make([]client.Binding, 3)} // a, b and c
	values := make([][]float32, 3)
	for i := range values {
		b, err := s.CreateBuffer(ctx, 4096, client.Storage)
		if err != nil {
			return err
		}
		if values[i], err = client.MapAs[float32](b); err != nil {
			return err
		}
		defer b.Unmap()
		launch.Bindings[i].Buffer = b
	}
	values[0][0], values[1][0] = 40, 2

	if launch.Program, err = s.OpenProgram(ctx, "vecadd_f32"); err != nil {
		return err
	}
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	fence, err := s.CreateFence(ctx, 0)
	if err != nil {
		return err
	}
	if _, err := q.Submit(&launch, &client.Signal{Fence: fence, Value: 1}); err != nil {
		return err
	}
	end, err := fence.Wait(ctx, 1)
	if err != nil {
		return err
	}
	fmt.Println(end, values[2][0])
	return nil
}
