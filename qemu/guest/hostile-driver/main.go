// Command hostile-driver is a driver that has been taken over: the core and the edu backend
// as in gpu-service, and a program "attack". Its launch makes the driver itself attack its
// surroundings. The bytes of the launch's one binding name the attack, and the result is
// written there, if the driver still can.
package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"capgpu/ddf"
	"capgpu/driver"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/outcome"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	open := func(g ddf.GrantSet) (backend.Backend, error) {
		d, err := edu.New(g)
		if err != nil {
			return nil, err
		}
		return &taken{Device: d, grants: g}, nil
	}
	if err := driver.Run(ctx, driver.Options{Open: open, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}); err != nil {
		fmt.Fprintln(os.Stderr, "hostile-driver:", err)
		os.Exit(1)
	}
}

// taken is a backend that an attacker has taken over.
type taken struct {
	*edu.Device
	grants ddf.GrantSet
	sink   backend.Sink
}

// attackName is the program that attacks when it is launched.
const attackName = "attack"

// attack is that program.
type attack struct{ info backend.ProgramInfo }

var theAttack = &attack{backend.ProgramInfo{
	Name:     attackName,
	Digest:   sha256.Sum256([]byte("capgpu hostile driver")),
	Entry:    "main",
	Bindings: []backend.BindingInfo{{Name: "order", Access: backend.ReadWrite, Type: "u8"}},
	Block:    backend.Dim3{X: 1, Y: 1, Z: 1},
}}

// Info implements backend.Program.
func (a *attack) Info() *backend.ProgramInfo { return &a.info }

// Programs implements backend.Backend.
func (t *taken) Programs() []string {
	names := append(t.Device.Programs(), attackName)
	slices.Sort(names)
	return names
}

// Builtin implements backend.Backend.
func (t *taken) Builtin(name string) (backend.Program, error) {
	if name == attackName {
		return theAttack, nil
	}
	return t.Device.Builtin(name)
}

// Start implements backend.Backend.
func (t *taken) Start(sink backend.Sink) error {
	t.sink = sink
	return t.Device.Start(sink)
}

// Submit implements backend.Backend.
func (t *taken) Submit(job *backend.Job) error {
	if job.Program != backend.Program(theAttack) {
		return t.Device.Submit(job)
	}
	go func() {
		memory := job.Spans[0].Host
		order, _, _ := strings.Cut(string(memory), "\x00")
		report := t.attack(order, job.Spans[0])
		clear(memory)
		copy(memory, report)
		t.sink.Complete(backend.Completion{ID: job.ID, Outcome: outcome.Success})
	}()
	return nil
}
