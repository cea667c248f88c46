package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// gone are the codes for an object that no longer exists, for any reason.
var gone = []gpuerr.Code{gpuerr.Closed, gpuerr.Revoked, gpuerr.Stale, gpuerr.Disconnected}

// lost are the codes for the end of a driver. A call while its successor is
// starting may get the others.
var lost = []gpuerr.Code{gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Busy}

// dial connects for the length of the behaviour.
func (c *Case) dial(tenant string) Conn {
	conn := get[Conn](c, "connect as "+tenant)(c.Stack.Dial(c.Ctx, tenant))
	c.Cleanup(conn.Close)
	return conn
}

// open opens a session on the first device. It ends with the connection or the
// case.
func (c *Case) open(conn Conn) Session {
	s := get[Session](c, "open a session")(conn.Open(c.Ctx, 0))
	c.Cleanup(func() { c.shut(s) })
	return s
}

// openUnbanned opens a session of the first tenant that is not banned. If all are
// banned, it waits for the first end that the refusals name; then the session must
// not be refused.
func (c *Case) openUnbanned(tenants ...Conn) (s Session, waited time.Duration) {
	var first Conn
	var end time.Time
	for _, conn := range tenants {
		s, err := conn.Open(c.Ctx, 0)
		if !errors.Is(err, gpuerr.Banned) {
			return get[Session](c, "open a session")(s, err), 0
		}
		until, why := banEnd(err)
		c.That(why == "", "the refusal of a banned tenant %s: %v", why, err)
		if first == nil || until.Before(end) {
			first, end = conn, until
		}
	}

	waited = time.Until(end)
	if last, limited := c.Ctx.Deadline(); limited {
		c.That(end.Before(last), "a ban is until %v, in %v: longer than this behaviour may take", end, waited)
	}

	select {
	case <-time.After(waited):
	case <-c.Ctx.Done():
	}

	return get[Session](c, "open a session after the end that a ban has named")(first.Open(c.Ctx, 0)), max(waited, 0)
}

// banEnd returns the end of a ban that an error names, or what is wrong with the
// error.
func banEnd(err error) (end time.Time, why string) {
	_, rest, found := strings.Cut(err.Error(), " until=")
	text, _, _ := strings.Cut(rest, ": ")
	end, wrong := time.Parse(time.RFC3339, text)
	if !found || wrong != nil {
		return time.Time{}, "names no end"
	}
	return end, ""
}

// session is a session of a tenant on the first device.
func (c *Case) session(tenant string) Session { return c.open(c.dial(tenant)) }

// shut closes a session that may already be over.
func (c *Case) shut(s Session) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := s.Close(ctx); err != nil && refusal(err, gone...) != "" && refusal(err, lost...) != "" {
		c.Failf("close a session: %v", err)
	}
}

// describe returns the bounds, which must be there.
func (c *Case) describe(s Session) client.Description {
	d := get[client.Description](c, "describe")(s.Describe(c.Ctx))
	c.That(d.HangBound > 0 && d.RevokeBound > 0, "describe publishes no bounds: hang %v, revoke %v", d.HangBound, d.RevokeBound)
	c.That(bits.OnesCount32(d.GlobalMemAlignment) == 1, "the alignment of bindings is %d, no power of two", d.GlobalMemAlignment)
	return d
}

func (c *Case) buffer(s Session, bytes uint64) Buffer {
	return get[Buffer](c, "create a buffer")(s.Buffer(c.Ctx, bytes))
}

func (c *Case) fence(s Session) Fence { return get[Fence](c, "create a fence")(s.Fence(c.Ctx)) }

func (c *Case) queue(s Session) Queue { return get[Queue](c, "create a queue")(s.Queue(c.Ctx)) }

// work makes work of a kind.
func (c *Case) work(s Session, k Kind, deadline time.Duration) Work {
	return get[Work](c, fmt.Sprintf("make %v work", k))(c.Stack.Work(c.Ctx, s, k, deadline))
}

// submit queues work.
func (c *Case) submit(q Queue, commands ...Command) (first uint64) {
	return get[uint64](c, "submit")(q.Submit(c.Ctx, commands...))
}

// completed waits for n completions.
func (c *Case) completed(q Queue, n int) []client.Completion {
	return get[[]client.Completion](c, "wait for completions")(await(c.Ctx, q, n))
}

// await takes n completions, within Patience.
func await(ctx context.Context, q Queue, n int) ([]client.Completion, error) {
	var all []client.Completion
	for len(all) < n {
		some, err := q.Completions(ctx, min(n-len(all), 64), Patience)
		if err != nil {
			return all, err
		}
		if len(some) == 0 {
			return all, fmt.Errorf("%d of %d completions within %v: %w", len(all), n, Patience, errHangs)
		}
		all = append(all, some...)
	}
	return all, nil
}

// errHangs is the error of a wait that did not end.
var errHangs = errors.New("it hangs")

// perform runs work in a queue of its own and returns the outcome of its last
// command.
func perform(ctx context.Context, s Session, w Work) (outcome.Outcome, error) {
	q, err := s.Queue(ctx)
	if err != nil {
		return outcome.Outcome{}, err
	}
	if _, err := q.Submit(ctx, w.Commands...); err != nil {
		return outcome.Outcome{}, err
	}
	all, err := await(ctx, q, len(w.Commands))
	if err != nil {
		return outcome.Outcome{}, err
	}
	err = q.Close(ctx)
	release(q)
	return all[len(all)-1].Outcome, err
}

// release releases a closed object, for clients that need it: a Cap'n Proto
// connection holds a bounded number of capabilities, including those of closed
// objects.
func release(closed any) {
	if x, ok := closed.(interface{ Release() }); ok {
		x.Release()
	}
}

// right runs normal work and checks its results. Any error that is not in lost is
// wrong, and so is an outcome that is not in allowed.
func right(ctx context.Context, stack Stack, s Session, allowed ...outcome.Kind) (ok bool, err error) {
	w, err := stack.Work(ctx, s, Normal, 0)
	if err != nil {
		return false, err
	}

	end, err := perform(ctx, s, w)
	if err != nil {
		return false, err
	}

	for _, k := range allowed {
		if end.Kind == k {
			return false, nil
		}
	}

	if end != outcome.Success {
		return false, fmt.Errorf("normal work ended %v", end)
	}
	if err := w.Check(ctx); err != nil {
		return false, err
	}

	closed := map[Buffer]bool{nil: true}
	for _, command := range w.Commands {
		for _, b := range append(command.Bindings, Binding{Buffer: command.Dst}, Binding{Buffer: command.Src}) {
			if !closed[b.Buffer] {
				closed[b.Buffer] = true
				if err := b.Buffer.Close(ctx); err != nil {
					return false, err
				}
				release(b.Buffer)
			}
		}
	}

	return true, nil
}

// normal runs normal work, which must be right.
func (c *Case) normal(s Session) {
	_, err := right(c.Ctx, c.Stack, s)
	c.Must(err, "normal work")
}

// held is a tenant's charges, as text; "" is nothing.
func (c *Case) held(tenant string) (string, error) {
	uses, err := c.Stack.Charges(c.Ctx, tenant, 0)
	if err != nil {
		return "", err
	}
	var some []string
	for _, u := range uses {
		if u.Used != 0 || u.Reserved != 0 {
			some = append(some, fmt.Sprintf("%s=%d+%d", u.Class, u.Used, u.Reserved))
		}
	}
	return strings.Join(some, " "), nil
}

// nothingHeld waits until a tenant has no charges.
func (c *Case) nothingHeld(tenant string) {
	c.Eventually(tenant+" is charged with nothing", func() error {
		text, err := c.held(tenant)
		if err == nil && text != "" {
			err = fmt.Errorf("it has %s", text)
		}
		return err
	})
}

// ready waits until the first device is ready in a later epoch.
func (c *Case) ready(conn Conn, device uint32, after uint64) uint64 {
	epoch, err := readyAfter(c.Ctx, conn, device, after)
	c.Must(err, "wait for a driver after epoch %d", after)
	return epoch
}

func readyAfter(ctx context.Context, conn Conn, device uint32, after uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		st, err := conn.Next(ctx, device, after, time.Second)
		switch {
		case err != nil:
			return 0, err
		case st.State == client.Ready && st.Epoch > after:
			return st.Epoch, nil
		case st.State == client.Wedged:
			return 0, fmt.Errorf("the device is wedged: %s", st.Cause)
		case ctx.Err() != nil:
			return 0, fmt.Errorf("the device stays %v in epoch %d", st.State, st.Epoch)
		}
		time.Sleep(2 * time.Millisecond) // any state but "ready in epoch" returns at once
	}
}

// epoch is the epoch of the first device.
func (c *Case) epoch(conn Conn, device uint32) uint64 {
	for _, d := range get[[]client.DeviceInfo](c, "list devices")(conn.Devices(c.Ctx)) {
		if d.Index == device {
			return d.Epoch
		}
	}
	c.Fatalf("there is no device %d", device)
	return 0
}

// descriptors are a process's open descriptors, from /proc: number and target.
func descriptors(pid int) (map[int]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	open := map[int]string{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			open[fd] = target
		}
	}

	return open, nil
}

// procStatus is /proc/PID/status.
func procStatus(pid int) (map[string]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}

// ownMemory is a process's private memory, in bytes.
func (c *Case) ownMemory(pid int) int64 {
	fields := get[map[string]string](c, "read a process's status")(procStatus(pid))
	kib, err := strconv.ParseInt(strings.TrimSuffix(fields["RssAnon"], " kB"), 10, 64)
	c.Must(err, "read RssAnon of process %d", pid)
	return kib << 10
}
