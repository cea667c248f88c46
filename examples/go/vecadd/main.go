// Command vecadd adds two vectors on a GPU of the capgpu service.
//
//	vecadd [SOCKET]
//
// SOCKET is the tenant socket, /run/capgpu/default.sock if it is not given.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"capgpu/client"
	"capgpu/outcome"
)

func main() {
	socket := "/run/capgpu/default.sock"
	if len(os.Args) > 1 {
		socket = os.Args[1]
	}
	if err := run(context.Background(), socket, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, socket string, out io.Writer) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}
	defer session.Close(ctx) // ends everything below

	const n = 1 << 20
	var bindings []client.Binding // a, b and c
	var values [][]float32        // the same memory, in this process
	for range 3 {
		buffer, err := session.CreateBuffer(ctx, n*4, client.Storage)
		if err != nil {
			return err
		}
		mapped, err := client.MapAs[float32](buffer)
		if err != nil {
			return err
		}
		defer buffer.Unmap()
		bindings, values = append(bindings, client.Binding{Buffer: buffer}), append(values, mapped)
	}
	for i := range n {
		values[0][i], values[1][i] = float32(i), 0.5
	}

	vecadd, err := session.OpenProgram(ctx, "vecadd_f32")
	if err != nil {
		return err
	}
	queue, err := session.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	if _, err := queue.Submit(&client.Launch{Program: vecadd, Bindings: bindings}); err != nil {
		return err
	}
	var done [1]client.Completion
	if _, err := queue.Completions(ctx, done[:]); err != nil {
		return err
	}
	if done[0].Outcome != outcome.Success {
		return fmt.Errorf("the work ended %v (%v)", done[0].Outcome, done[0].Err)
	}
	fmt.Fprintf(out, "c[%d] = %v\n", n-1, values[2][n-1])
	return nil
}
