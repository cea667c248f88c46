// Command engineuser is a driver that uses the engines that it is granted, and serves the mock.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/driver"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
)

func main() {
	if err := driver.Run(context.Background(), driver.Options{Open: open, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func open(g ddf.GrantSet) (backend.Backend, error) {
	if g.Engines == nil {
		return nil, errors.New("no engines are granted")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	// The first one dies, and the next one is another process.
	first, err := g.Engines.Open(ctx, 7)
	if err != nil {
		return nil, err
	}
	if err := ask(first, "hello"); err != nil {
		return nil, err
	}
	if _, err := g.Engines.Open(ctx, 7); !errors.Is(err, gpuerr.Busy) {
		return nil, fmt.Errorf("a second engine of a group: %v", err)
	}
	if err := first.Kill(ctx); err != nil {
		return nil, err
	}
	select {
	case <-first.Done():
	case <-ctx.Done():
		return nil, errors.New("the end of an engine was not told")
	}
	if err := first.Kill(ctx); err != nil {
		return nil, err
	}

	for group := range uint32(2) { // they stay
		e, err := g.Engines.Open(ctx, group)
		if err != nil {
			return nil, err
		}
		if err := ask(e, "hello again"); err != nil {
			return nil, err
		}
	}
	if _, err := g.Engines.Open(ctx, 2); !errors.Is(err, gpuerr.Busy) {
		return nil, fmt.Errorf("more engines than the policy allows: %v", err)
	}
	return mock.New(mock.Options{MemoryBytes: g.DMALimit()})
}

func ask(e ddf.Engine, what string) error {
	b := make([]byte, 64)
	if _, err := unix.Write(e.Link(), []byte(what)); err != nil {
		return fmt.Errorf("send to an engine: %w", err)
	}
	n, err := unix.Read(e.Link(), b)
	if err != nil || string(b[:n]) != what {
		return fmt.Errorf("an engine answered %q (%v)", b[:n], err)
	}
	return nil
}
