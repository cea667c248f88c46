// Command vecadd loads a program and adds two vectors with it.
//
//	vecadd [SOCKET]
//
// SOCKET is the tenant socket, /run/capgpu/default.sock if it is not given.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log"
	"os"

	"capgpu/client"
)

//go:embed vecadd.spv
var module []byte // of vecadd.comp

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

	program, err := session.LoadProgram(ctx, module)
	if err != nil {
		return err
	}

	const n = 1 << 20
	var bindings []client.Binding
	var values [][]float32 // the buffers' memory, in this process
	for _, elements := range []uint64{n, n, n} {
		buffer, err := session.CreateBuffer(ctx, elements*4, client.Storage)
		if err != nil {
			return err
		}
		memory, err := client.MapAs[float32](buffer)
		if err != nil {
			return err
		}
		defer buffer.Unmap()
		bindings, values = append(bindings, client.Binding{Buffer: buffer, Len: elements * 4}), append(values, memory)
	}

	for i := range n {
		values[0][i], values[1][i] = float32(i), 0.5
	}

	queue, err := session.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	launch := &client.Launch{Program: program, Bindings: bindings}
	if err := queue.Run(ctx, launch); err != nil {
		return err
	}

	fmt.Fprintf(out, "c[%d] = %v\n", n-1, values[2][n-1])
	return nil
}
