package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"capgpu/client"
	"capgpu/model/lm"
	"capgpu/model/load"
	"capgpu/model/openai"
	"capgpu/model/rpc"
	"capgpu/model/server"
)

// maxConnections bounds the clients of one HTTP listener.
const maxConnections = 512

// lastWords limits how long clients may take to learn that the server stops.
const lastWords = 2 * time.Second

// run serves until a signal asks it to stop, or something fails.
func run(ctx context.Context, o *options, stderr io.Writer, signals <-chan os.Signal) error {
	bar := &progress{w: stderr}
	log := o.logger(bar)
	token, err := readToken(o.tokenFile)
	if err != nil {
		return usageError{err}
	}

	file, err := load.OpenWith(o.model, load.Options{Tokenizer: o.tokenizer})
	if err != nil {
		return usageError{fmt.Errorf("open the model: %w", err)}
	}
	defer file.Close()

	bar.name = visible(file.Name) // a file may contain anything, and a terminal obeys control sequences
	onTerminal := isTerminal(stderr)
	m, err := server.New(server.Options{
		Dial:   func(ctx context.Context) (*client.Conn, error) { return client.Dial(ctx, o.socket) },
		Device: uint32(o.device), File: file, Name: o.name, Llama: o.llama,
		Waiting: o.waiting, Patience: o.patience, Start: o.wait, Log: log,
		Progress: func(done, total uint64) {
			if onTerminal {
				bar.bytes(done, total, time.Now())
			}
			if done == 0 { // loading a large model takes longer than systemd waits
				notify(log, "EXTEND_TIMEOUT_USEC=600000000\n"+statusLine("loading "+file.Name))
			}
		},
		Changed: func(state lm.State, reason string) {
			bar.clear()
			text := state.String()
			if reason != "" {
				text += ": " + reason
			}
			if state == lm.Ready {
				notify(log, daemon.SdNotifyReady+"\n"+statusLine(text))
			} else {
				notify(log, statusLine(text))
			}
		},
	})
	if err != nil {
		return usageError{err}
	}

	f, err := openFront(o, token, m, log)
	if err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	f.serve()

	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				m.Reopen()
				continue
			}
			log.Info("stopping", "signal", s.String(), "drain", o.drain)
			notify(log, daemon.SdNotifyStopping)
			drain(o.drain, m, f, signals)
			err = nil
		case err = <-f.failed:
		case err = <-ended:
			bar.clear()
			f.stop(0)
			return err
		}

		_ = m.Close(context.Background()) // answers Closed to the remaining requests
		f.stop(lastWords)
		return errors.Join(err, <-ended)
	}
}

// drain waits for the current requests: until they have ended, the time is up, or a
// second signal comes.
func drain(patience time.Duration, m *server.Server, f *front, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP {
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()

	f.hush()
	if m.Drain(ctx) == nil {
		f.wait(ctx) // finished answers are still being sent
	}

	cancel()
	<-watched
}

// front serves the model: an HTTP server for each listener, and Cap'n Proto.
type front struct {
	servers   []*http.Server
	listeners []net.Listener
	rpc       *net.UnixListener
	model     lm.Model
	log       *slog.Logger

	failed  chan error
	cancel  context.CancelFunc // of rpc
	ctx     context.Context
	serving sync.WaitGroup
}

// openFront opens all sockets, or none.
func openFront(o *options, token string, m lm.Model, log *slog.Logger) (*front, error) {
	f := &front{model: m, log: log, failed: make(chan error, len(o.listen)+1)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if err := f.open(o, token); err != nil {
		f.closeListeners()
		f.cancel()
		return nil, err
	}
	return f, nil
}

// open opens the sockets until one fails.
func (f *front) open(o *options, token string) error {
	handlers := map[string]http.Handler{} // one for each required token; their counts add up
	for _, address := range o.listen {
		var l net.Listener
		var err error
		asked := token
		if path, ok := unixPath(address); ok {
			asked = "" // the file mode decides about access
			l, err = listenUnix(path)
		} else {
			l, err = net.Listen("tcp", address)
		}

		if err != nil {
			return err
		}

		f.listeners = append(f.listeners, openai.Limit(l, maxConnections))
		if handlers[asked] == nil {
			handlers[asked] = openai.New(f.model, openai.Options{Token: asked, Log: f.log})
		}

		f.servers = append(f.servers, openai.NewServer(handlers[asked], f.log))
		f.log.Info("listening", "http", addressOf(l), "token", asked != "")
	}

	if o.rpc != "" {
		var err error
		if f.rpc, err = listenUnix(o.rpc); err != nil {
			return err
		}
		f.log.Info("listening", "capnp", o.rpc)
	}

	return nil
}

func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return "http://" + l.Addr().String() + "/"
}

func (f *front) closeListeners() {
	for _, l := range f.listeners {
		l.Close()
	}
	if f.rpc != nil {
		f.rpc.Close()
	}
}

// serve begins.
func (f *front) serve() {
	for i, s := range f.servers {
		f.serving.Go(func() {
			if err := s.Serve(f.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				f.failed <- fmt.Errorf("serve HTTP: %w", err)
			}
		})
	}
	if f.rpc != nil {
		f.serving.Go(func() {
			if err := rpc.Listen(f.ctx, f.rpc, f.model, rpc.Options{Log: f.log}); err != nil {
				f.failed <- fmt.Errorf("serve Cap'n Proto: %w", err)
			}
		})
	}
}

// hush makes connections end with their next answer.
func (f *front) hush() {
	for _, s := range f.servers {
		s.SetKeepAlivesEnabled(false)
	}
}

// wait accepts no more connections and waits until HTTP has none, or ctx ends.
func (f *front) wait(ctx context.Context) {
	var waiting sync.WaitGroup
	for _, s := range f.servers {
		waiting.Go(func() { _ = s.Shutdown(ctx) })
	}
	waiting.Wait()
}

// stop ends all serving: after patience by force.
func (f *front) stop(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f.wait(ctx)
	for _, s := range f.servers {
		s.Close()
	}
	f.cancel()
	f.serving.Wait()
}

// statusLine is the status for systemd. A text from a file or an error stays one
// line, because systemd would obey a second one.
func statusLine(text string) string { return "STATUS=" + visible(text) }

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("tell systemd", "err", err)
	}
}
