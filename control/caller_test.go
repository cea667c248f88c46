package control

import (
	"context"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// asker makes a Caller with h as its peer.
func asker(t testing.TB, h Handler) (k *Caller, result <-chan error) {
	t.Helper()
	fd, result := serve(t, h)
	k = NewCaller(newConn(t, fd))
	t.Cleanup(func() { k.Close() })
	return k, result
}

func TestCall(t *testing.T) {
	leakcheck.Check(t)
	lent := memfd(t)
	k, result := asker(t, func(ctx context.Context, m *Message) *Message {
		defer m.CloseFDs()
		switch m.Type {
		case TypeHello:
			return NewReply(m, HelloReply{Version: 1, Tenant: "alice"}.AppendTo(nil))
		case TypeOpenDevice:
			return NewReply(m, OpenDeviceReply{Epoch: 3}.AppendTo(nil), memfdOnce(t))
		case TypeStatus:
			return NewReply(m, make([]byte, MaxLongBytes-HeaderBytes))
		case TypeAttach:
			return NewReply(m, nil)
		}
		return ErrorReply(m, anError)
	})

	ctx := testContext(t)
	m, err := k.Call(ctx, TypeHello, HelloRequest{Version: 1}.AppendTo(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ParseHelloReply(m.Body); err != nil || r.Tenant != "alice" {
		t.Errorf("Hello: %+v, %v", r, err)
	}
	if m, err = k.Call(ctx, TypeOpenDevice, appendU32(nil, 0), nil); err != nil || len(m.FDs) != 1 {
		t.Fatalf("OpenDevice: %+v, %v", m, err)
	}

	m.CloseFDs()
	if m, err = k.Call(ctx, TypeStatus, appendU32(nil, 0), nil); err != nil || len(m.Body) != MaxLongBytes-HeaderBytes {
		t.Errorf("Status: %v", err)
	}
	if _, err = k.Call(ctx, TypeAttach, anAttach, []int{lent}); err != nil {
		t.Errorf("Attach: %v", err)
	}
	if _, err = k.Call(ctx, TypePing, nil, nil); !errors.Is(err, gpuerr.Quota) || gpuerr.From(err).Available != 4096 {
		t.Errorf("Ping: %v", err)
	}

	for name, call := range map[string]func() (*Message, error){
		"malformed":          func() (*Message, error) { return k.Call(ctx, TypeCloseQueue, appendU64(nil, 0), nil) },
		"unknown":            func() (*Message, error) { return k.Call(ctx, 999, nil, nil) },
		"surplus descriptor": func() (*Message, error) { return k.Call(ctx, TypePing, nil, []int{lent}) },
	} {
		if _, err := call(); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("%s: %v, want E_INVALID before it is sent", name, err)
		}
	}

	if err := k.Err(); err != nil {
		t.Errorf("Err() = %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if _, err := k.Call(ctx, TypePing, nil, nil); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Call after Close: %v", err)
	}
}

// TestCallMany: replies find their requests, in any order, and callers above the
// other side's limit wait their turn.
func TestCallMany(t *testing.T) {
	leakcheck.Check(t)
	var mu sync.Mutex
	var held []chan struct{} // requests that wait for a later one
	k, _ := asker(t, func(ctx context.Context, m *Message) *Message {
		r, err := ParseCreateFenceRequest(m.Body)
		if err != nil {
			return ErrorReply(m, err)
		}

		if r.Initial%3 == 0 {
			turn := make(chan struct{})
			mu.Lock()
			held = append(held, turn)
			mu.Unlock()
			<-turn
		} else {
			mu.Lock()
			for _, turn := range held {
				close(turn)
			}
			held = nil
			mu.Unlock()
		}

		return NewReply(m, HandleBody{Handle: r.Initial + 1}.AppendTo(nil))
	})

	// A third of the callers waits for the others, so 2/3 of the slots suffice.
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for n := range uint64(3 * MaxInFlight / 2) {
		wg.Go(func() {
			for i := range uint64(20) {
				v := n*1000 + i
				m, err := k.Call(testContext(t), TypeCreateFence, CreateFenceRequest{Initial: v}.AppendTo(nil), nil)
				if err != nil {
					t.Error(err)
					return
				}
				if r, err := ParseHandleBody(m.Body); err != nil || r.Handle != v+1 {
					t.Errorf("request %d was answered %+v, %v", v, r, err)
				}
			}
		})
	}

	// One goroutine keeps releasing the held ones.
	go func() {
		wg.Wait()
		close(stop)
	}()

	for v := uint64(1); ; v += 3 {
		select {
		case <-stop:
			return
		default:
			if _, err := k.Call(testContext(t), TypeCreateFence, CreateFenceRequest{Initial: v}.AppendTo(nil), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCallPeerDies(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, anyFDs)
	k := NewCaller(c)
	defer k.Close()

	var wg sync.WaitGroup
	for range MaxInFlight + 5 { // the last five wait for a slot
		wg.Go(func() {
			if _, err := k.Call(testContext(t), TypePing, nil, nil); !errors.Is(err, gpuerr.Disconnected) {
				t.Errorf("Call() = %v", err)
			}
		})
	}

	peer := newConn(t, fd)
	for range MaxInFlight {
		if _, err := peer.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	peer.Close()
	wg.Wait()
	<-k.Done()
	if err := k.Err(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Err() = %v", err)
	}
}

func TestCallAbandoned(t *testing.T) {
	leakcheck.Check(t)
	release := make(chan struct{})
	k, _ := asker(t, func(ctx context.Context, m *Message) *Message {
		if m.Type == TypeOpenDevice {
			<-release
			return NewReply(m, OpenDeviceReply{Epoch: 1}.AppendTo(nil), memfdOnce(t))
		}
		return NewReply(m, nil)
	})

	ctx, cancel := context.WithCancel(context.Background())
	abandoned := make(chan error)
	go func() {
		_, err := k.Call(ctx, TypeOpenDevice, appendU32(nil, 0), nil)
		abandoned <- err
	}()

	// Once a later request is answered, the first one has been sent.
	if _, err := k.Call(testContext(t), TypePing, nil, nil); err != nil {
		t.Fatal(err)
	}

	cancel()
	if err := <-abandoned; err != context.Canceled {
		t.Fatalf("Call() = %v", err)
	}

	close(release)
	// Its late reply, with a descriptor (see leakcheck), is harmless.
	for range 10 {
		if _, err := k.Call(testContext(t), TypePing, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCallLyingPeer: a peer that breaks the rules ends the link, and the
// descriptors it sent are closed.
func TestCallLyingPeer(t *testing.T) {
	fd := memfd(t)
	for _, c := range []struct {
		name string
		m    Message
		fds  []int
	}{
		{"unknown request", Message{Type: TypeOpenDevice, Seq: 99, Body: appendU64(nil, 1)}, []int{fd}},
		{"another type", Message{Type: TypePing, Seq: 1}, nil},
		{"malformed body", Message{Type: TypeOpenDevice, Seq: 1, Body: []byte{1}}, []int{fd}},
		{"descriptor missing", Message{Type: TypeOpenDevice, Seq: 1, Body: appendU64(nil, 1)}, nil},
		{"surplus descriptor", Message{Type: TypeOpenDevice, Seq: 1, Body: appendU64(nil, 1)}, []int{fd, fd}},
		{"malformed error", Message{Type: TypeOpenDevice, Seq: 1, Code: gpuerr.Quota, Body: []byte{1}}, nil},
		{"error with descriptor", Message{Type: TypeOpenDevice, Seq: 1, Code: gpuerr.Quota, Body: AppendErrorBody(nil, anError)}, []int{fd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakcheck.Check(t)
			conn, peer := pair(t, anyFDs)
			defer unix.Close(peer)
			k := NewCaller(conn)
			defer k.Close()
			c.m.Reply, c.m.FDs = true, c.fds
			rawSend(t, peer, encode(t, &c.m), c.fds...)
			if _, err := k.Call(testContext(t), TypeOpenDevice, appendU32(nil, 0), nil); !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("Call() = %v", err)
			}
		})
	}

	t.Run("request", func(t *testing.T) {
		leakcheck.Check(t)
		conn, peer := pair(t, anyFDs)
		defer unix.Close(peer)
		k := NewCaller(conn)
		defer k.Close()
		rawSend(t, peer, encode(t, &Message{Type: TypeAttach, Seq: 1, Body: anAttach, FDs: []int{fd}}), fd)
		<-k.Done()
		if err := k.Err(); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("Err() = %v", err)
		}
	})
}

// TestPeersAskEachOther is the supervision link: both sides send requests and
// answer.
func TestPeersAskEachOther(t *testing.T) {
	leakcheck.Check(t)
	a, fd := pair(t, anyFDs)
	b := newConn(t, fd)
	handler := func(name string) Handler {
		return func(ctx context.Context, m *Message) *Message {
			if m.Type == TypeDriverStatus {
				return NewReply(m, []byte(name))
			}
			return NewReply(m, nil)
		}
	}

	ka := NewPeer(context.Background(), a, handler("a"))
	ctx, cancel := context.WithCancel(context.Background())
	kb := NewPeer(ctx, b, handler("b"))
	defer kb.Close()
	defer ka.Close()

	var wg sync.WaitGroup
	for range 10 {
		for k, want := range map[*Caller]string{ka: "b", kb: "a"} {
			wg.Go(func() {
				for range 50 {
					m, err := k.Call(testContext(t), TypeDriverStatus, appendStr(nil, ""), nil)
					if err != nil || string(m.Body) != want {
						t.Errorf("asked %s: %+v, %v", want, m, err)
						return
					}
				}
			})
		}
	}

	wg.Wait()
	cancel()
	<-kb.Done()
	<-ka.Done()
	if err := kb.Err(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("the side whose context ended: %v", err)
	}
	if err := ka.Err(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("the other side: %v", err)
	}
}

func BenchmarkCall(b *testing.B) {
	k, _ := asker(b, okHandler)
	body := FenceSignalRequest{Handle: 1, Value: 2}.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Call(context.Background(), TypeFenceSignal, body, nil); err != nil {
			b.Fatal(err)
		}
	}
}
