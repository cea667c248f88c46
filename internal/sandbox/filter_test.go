package sandbox

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// verdict runs a filter on one system call, as the kernel does.
func verdict(t *testing.T, filter []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	word := func(off uint32) uint32 {
		switch {
		case off == nrOff:
			return nr
		case off == archOff:
			return arch
		}
		i, high := (off-argOff)/8, (off-argOff)%8 != 0
		if int(i) >= len(args) {
			return 0
		}
		if high {
			return uint32(args[i] >> 32)
		}
		return uint32(args[i])
	}
	var a uint32
	for pc := 0; pc < len(filter); pc++ {
		x := filter[pc]
		taken := false
		switch x.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = word(x.K)
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= x.K
			continue
		case unix.BPF_RET | unix.BPF_K:
			return x.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = a == x.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = a&x.K != 0
		default:
			t.Fatalf("instruction %d: %+v", pc, x)
		}
		if taken {
			pc += int(x.Jt)
		} else {
			pc += int(x.Jf)
		}
	}
	t.Fatal("the filter runs over its end")
	return 0
}

// table is one that becomes a filter.
type table struct {
	name  string
	calls []call
	other uint32
}

// refused is the verdict about another call.
func (x table) refused() uint32 {
	if x.other != 0 {
		return x.other
	}
	return unix.SECCOMP_RET_KILL_PROCESS
}

func tables() (all []table) {
	const pid = 4711
	for _, p := range []*Profile{Driver, Gate, Engine} {
		all = append(all, table{p.Name(), p.calls(pid), p.other})
	}
	for name, s := range map[string]Sealed{"sealed": {}, "sealed for F": {Ioctl: []byte{'F'}, Open: true}} {
		all = append(all, table{name, s.calls(pid), 0})
	}
	return all
}

// The filter decides every number as the table does.
func TestFilterIsTheTable(t *testing.T) {
	for _, p := range tables() {
		calls := p.calls
		filter := assemble(auditArch, calls, p.other)
		require.Less(t, len(filter), 4096, "BPF_MAXINSNS")
		for nr := range uint32(600) {
			want := p.refused()
			i := slices.IndexFunc(calls, func(c call) bool { return c.nr == nr })
			args := make([]uint64, 6)
			if i >= 0 {
				want = calls[i].allow().K
				for _, c := range calls[i].only {
					if len(c.oneOf) > 0 {
						args[c.arg] = uint64(c.oneOf[len(c.oneOf)-1])
					}
				}
			}
			require.Equal(t, want, verdict(t, filter, auditArch, nr, args...), "%s %d", p.name, nr)
			require.EqualValues(t, unix.SECCOMP_RET_KILL_PROCESS, verdict(t, filter, unix.AUDIT_ARCH_I386, nr, args...))
			require.Equal(t, p.refused(), verdict(t, filter, auditArch, nr|1<<30, args...), "x32")
		}
	}
}

// Each condition lets through each value that it names, and not another one.
func TestConditions(t *testing.T) {
	for _, p := range tables() {
		calls := p.calls
		filter := assemble(auditArch, calls, p.other)
		for _, c := range calls {
			for i, cond := range c.only {
				args := make([]uint64, 6)
				for _, other := range c.only {
					if len(other.oneOf) > 0 {
						args[other.arg] = uint64(other.oneOf[0])
					}
				}
				with := func(v uint64) uint32 {
					a := slices.Clone(args)
					a[cond.arg] = v
					return verdict(t, filter, auditArch, c.nr, a...)
				}
				for _, v := range cond.oneOf {
					require.EqualValues(t, unix.SECCOMP_RET_ALLOW, with(uint64(v)), "%s condition %d: %d", c.name, i, v)
				}
				if len(cond.oneOf) > 0 {
					require.Equal(t, p.refused(), with(0xfffffff1), "%s condition %d", c.name, i)
				}
				if cond.not != 0 {
					require.Equal(t, p.refused(), with(uint64(cond.not)), "%s condition %d", c.name, i)
					require.EqualValues(t, unix.SECCOMP_RET_ALLOW, with(uint64(^cond.not)), "%s condition %d", c.name, i)
				}
			}
		}
	}
}

// The product promises under 60 calls, none of the dangerous ones, and fewer for a gate than
// for a driver.
func TestTables(t *testing.T) {
	require.Less(t, Driver.Calls(), 60)
	require.Less(t, Gate.Calls(), Driver.Calls())
	names := map[*Profile]map[string]bool{}
	for _, p := range []*Profile{Driver, Gate} {
		names[p] = map[string]bool{}
		seen := map[uint32]bool{}
		for _, c := range p.calls(1) {
			require.False(t, seen[c.nr], "%s: %s is there twice", p.Name(), c.name)
			seen[c.nr], names[p][c.name] = true, true
			require.NotEmpty(t, c.why, c.name)
		}
		for _, forbidden := range []uint32{
			unix.SYS_IOCTL, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_SOCKET, unix.SYS_CONNECT,
			unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_KILL, unix.SYS_PTRACE,
			unix.SYS_CLONE3, unix.SYS_UNSHARE, unix.SYS_MOUNT, unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_SECCOMP,
		} {
			require.False(t, seen[forbidden], "%s allows call %d", p.Name(), forbidden)
		}
	}
	asks := []string{"getsockname", "getpeername"} // which only ask
	for name := range names[Gate] {
		require.True(t, names[Driver][name] || slices.Contains(asks, name), "a gate may %s and a driver may not", name)
	}
}
