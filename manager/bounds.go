package manager

import (
	"context"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/ledger"
)

// The manager makes at most maxAsking requests to a driver at once for tenants, and
// maxTenantAsking for one tenant. A link carries 64. The rest is for the manager's own
// requests: a ping must not wait for tenants, or they could make a healthy driver look dead.
const (
	maxAsking       = 32
	maxTenantAsking = 4
)

// turnstile is a semaphore that serves its waiters in order.
type turnstile chan struct{}

func newTurnstile(n int) turnstile { return make(turnstile, n) }

func (t turnstile) enter(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turnstile) leave() { <-t }

// reservedDescriptors are for the manager itself, for descriptors in transit, and for the
// gates in the pool, each with its link.
const reservedDescriptors = 96 + (readyGates+startingGates)*(childDescriptors+1)

// reservedMappings are for the heap, the stacks and the program itself. If the kernel refuses
// the Go runtime a mapping, the whole process ends.
const reservedMappings = 4096

// processLimits bound DMA memory: each piece takes one of both.
type processLimits struct {
	files    uint64 // open at once (RLIMIT_NOFILE)
	mappings uint64 // of memory (vm.max_map_count, Documentation/admin-guide/sysctl/vm.rst)
}

// affordableEntries returns how many pieces of DMA memory each function may have. Each piece
// is a descriptor and a mapping of this process. They are bounded by the limit of open files
// less all connections, and by the kernel's limit of mappings less the process's own. Without
// this bound, tenants with many buffers could keep others from connecting, or end the
// manager.
func affordableEntries(p *Policy, functions []FunctionPolicy) ([]uint64, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("ask for the limit of open files: %w", err)
	}
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return nil, fmt.Errorf("ask for the limit of mappings: %w", err)
	}
	mappings, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("ask for the limit of mappings: %w", err)
	}
	return entriesWithin(p, functions, processLimits{files: files.Cur, mappings: mappings})
}

// childDescriptors are for a process: its standard error, its pidfd, its cgroup and the file
// that kills the cgroup.
const childDescriptors = 4

// connectionDescriptors are for a connection: its broker socket, its gate, and one in
// transit.
const connectionDescriptors = 1 + childDescriptors + 1

// driverDescriptors are for a driver: two links and three namespaces.
const driverDescriptors = childDescriptors + 2 + 3

// logDescriptors are for the audit log of a tenant, a device or its drivers: the current
// segment, and the next one while it is being made.
const logDescriptors = 2

// tenantDescriptors are for a tenant's two sockets and its log.
const tenantDescriptors = 2 + logDescriptors

// functionDescriptors are for a function itself, its windows, its current, ending and standby
// drivers, and its spare memory. Each vector takes two more: an eventfd, and its target while
// it is masked.
const functionDescriptors = 13 + 2*logDescriptors + 3*driverDescriptors + zeroPoolSizes*zeroPoolSpares

// engineDescriptors are for an engine: its link, its control socket, both ends of the pipe that
// tells its end, and its guard of devices, which is a program and its place.
const engineDescriptors = childDescriptors + 6

// descriptorsOf returns how many descriptors connections and functions may take, without DMA
// memory.
func descriptorsOf(p *Policy, functions []FunctionPolicy) uint64 {
	need := uint64(reservedDescriptors)
	for _, t := range p.Tenants {
		need += connectionDescriptors*t.MaxConnections + tenantDescriptors
	}
	for _, f := range functions {
		need += functionDescriptors + 2*uint64(f.Vectors)
		if f.Node != nil {
			need += engineDescriptors * uint64(f.Node.Most+1)
		}
	}
	return need
}

// checkRoom refuses a policy if its connections do not fit beside the DMA memory that
// functions may have since the start.
func (m *Manager) checkRoom(p *Policy) error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("ask for the limit of open files: %w", err)
	}
	var functions []FunctionPolicy
	var entries uint64
	for _, d := range m.devices {
		functions = append(functions, d.policy)
		entries += limitOf(d.account, ledger.IOVAEntries)
	}
	if need := descriptorsOf(p, functions) + entries; need > files.Cur {
		return fmt.Errorf("the policy's connections need %d descriptors more than the limit of open files (%d) has left: lower maxConnections, or restart device-manager, which gives functions fewer mappings then", need-files.Cur, files.Cur)
	}
	return nil
}

func entriesWithin(p *Policy, functions []FunctionPolicy, limits processLimits) ([]uint64, error) {
	need := descriptorsOf(p, functions)
	var wanted uint64
	entries := make([]uint64, len(functions))
	for i, f := range functions {
		entries[i] = min(f.IOVAEntries, 1<<40) // so that the sums below do not overflow
		wanted += entries[i]
	}

	if need >= limits.files {
		return nil, fmt.Errorf("the policy's connections and functions need %d descriptors and the limit of open files is %d: raise the limit (LimitNOFILE, ulimit -n) or lower maxConnections", need, limits.files)
	}
	if reservedMappings >= limits.mappings {
		return nil, fmt.Errorf("device-manager needs more than %d mappings of memory and the kernel's limit is %d: raise vm.max_map_count", reservedMappings, limits.mappings)
	}

	if room := min(limits.files-need, limits.mappings-reservedMappings); wanted > room {
		for i := range entries { // each gives up the same part
			hi, lo := bits.Mul64(entries[i], room)
			entries[i], _ = bits.Div64(hi, lo, wanted)
		}
	}

	return entries, nil
}

// grace is time that several things have to end in, one after the other.
type grace struct {
	timer *time.Timer
	over  bool
}

func newGrace(d time.Duration) *grace { return &grace{timer: time.NewTimer(d)} }

// lateGrace bounds waits that begin after the time is up.
const lateGrace = 100 * time.Millisecond

// wait reports whether done was closed in time.
func (g *grace) wait(done <-chan struct{}) bool {
	if g.over {
		g.timer.Reset(lateGrace)
	}

	select {
	case <-done:
		return true
	case <-g.timer.C:
		g.over = true
	}

	select {
	case <-done:
		return true
	default:
		return false
	}
}
