package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/model/peers/peerstest"
)

const hidden = "capgpu-attacker"

// order is the command to an attacker.
type order struct {
	Attack        int
	Step          int
	Seed          uint64
	For           time.Duration
	Socket, Capnp string
	Bin           string
}

// RunIfAttacker makes this process an attacker if it was started as one, and then
// never returns.
func RunIfAttacker() {
	peerstest.RunIfCrowd()
	if len(os.Args) != 3 || os.Args[1] != hidden {
		return
	}

	var o order
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(2)
	}

	yield()
	a := &attacker{socket: o.Socket, capnp: o.Capnp, bin: o.Bin, step: o.Step, random: rand.New(rand.NewPCG(o.Seed, uint64(o.Attack))), tally: Tally{Answers: map[string]int{}}}
	ctx, cancel := context.WithTimeout(context.Background(), o.For)
	defer cancel()

	if o.Attack == burning {
		burn(ctx)
	}

	for again := o.Attack != burning; again; again = ctx.Err() == nil && o.Step == 0 {
		if err := All[o.Attack].run(ctx, a); err != nil {
			a.answered(err) // the end of its attempt
		}
	}

	if err := json.NewEncoder(os.Stdout).Encode(a.tally); err != nil {
		os.Exit(1)
	}

	os.Exit(0)
}

// burning is no attack: it only computes, on all processors.
const burning = -1

func burn(ctx context.Context) {
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	all.Wait()
}

// killed reports whether a process ended by SIGKILL.
func killed(e *exec.ExitError) bool {
	status, ok := e.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == unix.SIGKILL
}

// yield gives the attacker the host's lowest priority, because the host's scheduler
// is responsible for the effect of a client that burns its CPU.
func yield() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // then it competes
	}
	for _, t := range threads {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 19)
		}
	}
}

// attackOnce runs an attacker to its end.
func attackOnce(o order) (Tally, error) {
	self, err := os.Executable()
	if err != nil {
		return Tally{}, err
	}

	text, err := json.Marshal(o)
	if err != nil {
		return Tally{}, err
	}

	var out bytes.Buffer
	cmd := exec.Command(self, hidden, string(text))
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return Tally{}, err
	}

	if o.Attack != burning && All[o.Attack].stops {
		time.Sleep(o.For) // it is stopped by then, or soon
		if err := cmd.Process.Kill(); err != nil {
			return Tally{}, errors.Join(err, cmd.Wait())
		}
	}

	limit := time.AfterFunc(o.For+2*longest, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	err = cmd.Wait()
	var t Tally
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &t)
		return t, err
	}

	var status *exec.ExitError
	if errors.As(err, &status) && o.Attack != burning && (o.Step > 0 || All[o.Attack].stops) && killed(status) {
		what := fmt.Sprintf("killed after step %d", o.Step)
		if o.Step == 0 {
			what = "stopped, then killed"
		}
		return Tally{Attempts: 1, Answers: map[string]int{what: 1}}, nil
	}

	return t, fmt.Errorf("the attacker has ended: %w", err)
}
