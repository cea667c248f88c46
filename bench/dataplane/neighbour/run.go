package neighbour

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
)

// RunIfNeighbour makes this process a neighbour if it was started as one, and then
// never returns.
func RunIfNeighbour() {
	if len(os.Args) < 4 || os.Args[1] != hidden {
		return
	}
	yield()
	n := &neighbour{manner: Manner(os.Args[2]), sockets: os.Args[3:]}
	if err := n.obey(); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(Report{Err: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// lastInOrder is the lowest priority that the host has for threads which share the
// processor (sched(7)); a SCHED_IDLE thread runs only as long as nobody else wants
// the processor.
const lastInOrder = 19

// yield gives all threads of this process the lowest priority; new ones inherit it.
func yield() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // then it competes
	}
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lastInOrder)
			_ = unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE, Nice: lastInOrder}, 0)
		}
	}
}

type neighbour struct {
	manner  Manner
	sockets []string
	tenant  int // which socket is in use
	report  Report
}

// obey executes its parent's commands: "begin" and "stop".
func (n *neighbour) obey() error {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	var busy sync.WaitGroup
	stop := func() {}
	for lines.Scan() {
		stop()
		busy.Wait()
		if lines.Text() == "begin" {
			ctx, cancel := context.WithCancel(context.Background())
			stop = cancel
			begun := make(chan struct{})
			n.report = Report{Refused: map[string]int{}}
			busy.Go(func() { n.run(ctx, begun) })
			<-begun
			if err := out.Encode(Report{}); err != nil {
				return err
			}
			continue
		}

		if err := out.Encode(n.report); err != nil {
			return err
		}
	}

	return nil // the parent is gone
}

// run behaves until ctx ends. begun is closed when the first try has been made.
func (n *neighbour) run(ctx context.Context, begun chan struct{}) {
	once := sync.OnceFunc(func() { close(begun) })
	defer once()
	for ctx.Err() == nil {
		err := n.life(ctx, once)
		if err == nil || ctx.Err() != nil {
			continue
		}
		n.refused(err)
		once()
		if errors.Is(err, gpuerr.Banned) {
			n.tenant = (n.tenant + 1) % len(n.sockets)
		}
		// A client that was refused asks again at once, but not so often that it
		// does nothing else.
		time.Sleep(100 * time.Microsecond)
	}
}

func (n *neighbour) refused(err error) {
	var ended *client.OutcomeError
	if errors.As(err, &ended) {
		n.report.Refused[fmt.Sprint(ended.Outcome)]++
		return
	}
	n.report.Refused[gpuerr.CodeOf(err).String()]++
}

// life is one session: opened, misused, and closed.
func (n *neighbour) life(ctx context.Context, begun func()) (err error) {
	s, err := n.open(ctx)
	if err != nil {
		return err
	}
	// This ignores ctx: nothing of the session may be left when Stop has answered.
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), longestClose)
		defer cancel()
		err = errors.Join(err, s.Close(closing))
	}()

	switch n.manner {
	case Endless:
		return n.endless(ctx, s, begun)
	case Flood:
		return n.flood(ctx, s, begun)
	case Quota:
		return n.exhaust(ctx, s, begun)
	case Closes:
		return n.fill(ctx, s, begun)
	default:
		return n.behave(ctx, s, begun)
	}
}

const longestClose = 20 * time.Second

func (n *neighbour) open(ctx context.Context) (*client.Session, error) {
	conn, err := client.Dial(ctx, n.sockets[n.tenant])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.Open(ctx, 0)
}
