package attack

import (
	"context"
	"errors"
	"sync"
	"time"

	"capgpu/bench/dataplane/service"
	"capgpu/client"
	"capgpu/gpuerr"
)

// besides are the events in the service during an attack, until over is closed.
var besides = map[string]func(svc *service.Service, over <-chan struct{}) error{
	takenAway: comeAndGo,
}

// besideTime is the minimal duration of such an attack.
const besideTime = time.Second

// startBeside runs f until its caller calls the returned function, which returns
// the result.
func startBeside(f func(over <-chan struct{}) error) (end func() error) {
	over, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- f(over) }()
	return func() error {
		close(over)
		return <-done
	}
}

const takenAway = "taken away by reloads, and given back"

// comeAndGo removes the attacker's tenant from the policy and adds it again, at
// least twice. It ends with the tenant there.
func comeAndGo(svc *service.Service, over <-chan struct{}) error {
	for n := 0; ; n++ {
		if err := errors.Join(svc.SetNeighbours(nil), svc.SetNeighbours([]string{attackers})); err != nil {
			return err
		}
		select {
		case <-over:
			if n > 0 {
				return nil
			}
		case <-time.After(50 * time.Millisecond): // it attacks meanwhile
		}
	}
}

// survived is the forbidden answer to the use of a session.
const survived = untyped + ": a session has ended for no reason of the policy"

// heldOn connects and opens whenever it can, keeps sessions without their
// connections, works in them, and keeps asking after their end.
func heldOn(ctx context.Context, a *attacker) error {
	var mu sync.Mutex
	answered := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		a.answered(err)
	}

	var holding sync.WaitGroup
	for range 4 {
		holding.Go(func() {
			for ctx.Err() == nil {
				sessions := comeIn(ctx, a.socket, answered)
				if len(sessions) == 0 {
					select { // its tenant is not there
					case <-ctx.Done():
					case <-time.After(time.Millisecond):
					}
				}
				for _, s := range sessions {
					answered(useUntilTheEnd(ctx, s))
				}
			}
		})
	}

	holding.Wait()
	return nil
}

// comeIn opens some sessions, and closes their connection.
func comeIn(ctx context.Context, socket string, answered func(error)) (sessions []*client.Session) {
	conn, err := client.Dial(ctx, socket)
	answered(err)
	if err != nil {
		return nil
	}
	defer conn.Close()
	for range 3 {
		s, err := conn.Open(ctx, 0)
		answered(err)
		if err != nil {
			break
		}
		sessions = append(sessions, s)
	}
	return sessions
}

// useUntilTheEnd works in a session until it ends, and a little longer. It ends
// because of the policy, or with the time of the attack.
func useUntilTheEnd(ctx context.Context, s *client.Session) error {
	defer s.Close(context.WithoutCancel(ctx))
	for ctx.Err() == nil {
		b, err := s.CreateBuffer(ctx, 64<<10, client.Storage)
		if err != nil {
			break
		}
		q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 16})
		if err != nil {
			break
		}
		if _, err := q.Submit(&client.Fill{Buffer: b, Bytes: 64 << 10, Pattern: 7}); err != nil {
			break
		}
		_ = q.Close(ctx)
		_ = b.Close(ctx)
	}

	select {
	case <-s.Done():
	case <-ctx.Done():
		return nil
	}

	_, again := s.CreateBuffer(ctx, 4096, client.Storage)
	switch {
	case again == nil:
		return errors.New("a session has ended and goes on")
	case errors.Is(s.Err(), gpuerr.Revoked):
		return s.Err()
	}

	return errors.New(survived + ": " + s.Err().Error())
}
