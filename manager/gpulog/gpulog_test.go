package gpulog

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestLines(t *testing.T) {
	for line, want := range map[string]Event{
		"NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=engine, Ch 00000008, intr 00000000. MMU Fault": {Address: "0000:01:00", Kind: "xid", Xid: 31, PID: 1234, Sure: true},
		"NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": {Address: "0000:01:00", Kind: "xid", Xid: 79},
		"NVRM: Xid (PCI:0000:c1:00): 13, Graphics Exception: ESR 0x505848=0x1":                         {Address: "0000:c1:00", Kind: "xid", Xid: 13},
		"NVRM: Xid (PCI:0000:01:00): 109, pid=7, name=x, pid=8":                                        {Address: "0000:01:00", Kind: "xid", Xid: 109, PID: 7, Sure: true},
		"amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=3, emitted seq=5":          {Address: "0000:03:00.0", Kind: "timeout"},
		"amdgpu 0000:03:00.0: amdgpu:  Process information: process engine pid 12 thread e:cs pid 13":  {Address: "0000:03:00.0", Kind: "process", PID: 12},
		"amdgpu 0000:03:00.0: amdgpu: GPU reset begin!":                                                {Address: "0000:03:00.0", Kind: "hang"},
		"i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:85dffffb, in engine [1234]":                      {Address: "0000:00:02.0", Kind: "hang", PID: 1234},
		"xe 0000:03:00.0: [drm] Timedout job: seqno=3, lrc_seqno=3, guc_id=2, flags=0x0 in x [9] [12]": {Address: "0000:03:00.0", Kind: "timeout", PID: 12},
	} {
		e, ok := ParseLine(line)
		require.True(t, ok, line)
		want.Text = line
		require.Equal(t, want, e)
		_, ok = ParseRecord([]byte("3,100,5,-;" + line + "\n SUBSYSTEM=pci\n"))
		require.True(t, ok)
		_, ok = ParseRecord([]byte("11,100,5,-;" + line)) // of a process
		require.False(t, ok)
		_, ok = ParseLine("x " + line)
		require.False(t, ok)
	}
	for _, line := range []string{
		"", "NVRM: loading NVIDIA UNIX Open Kernel Module", "NVRM: Xid (PCI:0000:01:00.0): 31, x", "NVRM: Xid (PCI:0000:1:00): 31, x", "NVRM: Xid (PCI:0000:01:00): x",
		"NVRM: Xid (PCI:0000:01:00): 99999999, x", "amdgpu 0000:03:00.9: amdgpu: ring x timeout", "amdgpu 0000:03:00.0: amdgpu: VRAM: 1", "i915 0000:00:02.0: [drm] hello", "i915 : [drm] GPU HANG: x",
	} {
		_, ok := ParseLine(line)
		require.False(t, ok, line)
	}

	require.True(t, Event{Address: "0000:01:00"}.Concerns("0000:01:00.0"))
	require.True(t, Event{Address: "0000:01:00.0"}.Concerns("0000:01:00.0"))
	require.False(t, Event{Address: "0000:01:00.1"}.Concerns("0000:01:00.0"))
	require.False(t, Event{Address: "0000:01:00"}.Concerns(""))
	require.False(t, Event{}.Concerns("0000:01:00.0"))
}

func TestFollow(t *testing.T) {
	_, err := Follow(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorContains(t, err, "CAP_SYSLOG")

	path := filepath.Join(t.TempDir(), "kmsg") // a pipe gives one record a read while it is read at once
	require.NoError(t, unix.Mkfifo(path, 0o600))
	writer, err := unix.Open(path, unix.O_RDWR, 0)
	require.NoError(t, err)
	defer unix.Close(writer)
	events := make(chan Event, 1)
	f, err := Follow(path, func(e Event) { events <- e })
	require.NoError(t, err)
	for range 3 {
		_, err = unix.Write(writer, []byte("3,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=x\n"))
		require.NoError(t, err)
		select {
		case e := <-events:
			require.Equal(t, 1234, e.PID)
		case <-time.After(20 * time.Second):
			t.Fatal("no event")
		}
	}
	require.NoError(t, f.Close())
	require.NoError(t, (*Follower)(nil).Close())
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("3,100,5,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=engine, Ch 8\n"))
	f.Add([]byte("3,100,5,-;amdgpu 0000:03:00.0: amdgpu: Process information: process engine pid 12 thread e pid 13"))
	f.Add([]byte("3,100,5,-;i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:85dffffb, in engine [1234]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := ParseRecord(b)
		if !ok {
			return
		}
		require.NotEmpty(t, e.Kind)
		require.LessOrEqual(t, len(e.Text), maxTextBytes)
		require.GreaterOrEqual(t, e.PID, 0)
		require.True(t, isAddress(strings.TrimSpace(e.Address), strings.Contains(e.Address, ".")))
	})
}
