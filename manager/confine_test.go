package manager_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/internal/sandbox"
	"capgpu/internal/sandbox/devguard"
	"capgpu/ledger"
	"capgpu/manager"
)

// offered returns the mechanisms that this host has, and those that it lacks.
func offered(t *testing.T) (have, lack []sandbox.Mechanism) {
	j, err := sandbox.New(sandbox.Options{GuardDevices: devguard.Attach})
	require.NoError(t, err)
	defer func() { require.NoError(t, j.Close()) }()
	for _, m := range j.Missing() {
		lack = append(lack, m.Mechanism)
	}
	for _, m := range sandbox.Mechanisms {
		if !slices.Contains(lack, m) {
			have = append(have, m)
		}
	}
	return have, lack
}

// Real drivers and gates are confined by all mechanisms of the host, and serve.
func TestEverythingOfferedCanBeRequired(t *testing.T) {
	have, lack := offered(t)
	t.Logf("required: %v; this host lacks %v", have, lack)
	w := start(t, func(c *manager.Config) { c.Policy.Sandbox.Require = have })
	require.NoError(t, addVectors(within(t), w.open(w.dial("default"))))
	m := w.dialCapnp("default")
	f, release := m.ListDevices(within(t), nil)
	defer release()
	_, err := f.Struct()
	require.NoError(t, err)
	require.Zero(t, w.log.kinds()["sandbox.violation"])
}

// A required mechanism that the host lacks keeps the manager from starting.
func TestRequiredAndNotOffered(t *testing.T) {
	_, lack := offered(t)
	if len(lack) == 0 {
		t.Skip("NOT TESTED: this host has everything")
	}
	p := manager.DevPolicy()
	p.Sandbox.Require = lack[:1]
	log := &memoryLog{}
	_, err := manager.Start(manager.Config{
		Policy: p, RunDir: filepath.Join(shortDir(t), "run"), Audit: log,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	})
	require.ErrorContains(t, err, "the policy requires a confinement that cannot be had here: "+string(lack[0]))
	require.True(t, log.closed)
}

// A driver that has not confined itself is not served.
func TestDriverThatIsNotConfined(t *testing.T) {
	w := lied(t, "no ear for limits", func(c *manager.Config) {
		c.Policy.Sandbox.Require = []sandbox.Mechanism{sandbox.Capabilities, sandbox.Seccomp}
	})
	st := w.await(w.dial("default"), 0, client.Wedged)
	require.Contains(t, st.Cause, "is not served: the policy requires")
	require.Contains(t, st.Cause, "seccomp: it has no system call filter")
}

// stranger builds testdata/stranger.
func stranger(t *testing.T) string {
	t.Helper()
	path := filepath.Join(shortDir(t), "stranger")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/stranger")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// A forbidden system call ends a driver, and its cause and the log say so.
func TestForbiddenCallIsRecorded(t *testing.T) {
	w := start(t, func(c *manager.Config) {
		c.DriverPath = stranger(t)
		c.Policy.Device.Respawn.Budget = 0
	})
	st := w.await(w.dial("default"), 0, client.Wedged)
	require.Contains(t, st.Cause, "killed for a forbidden system call")
	require.Equal(t, 1, w.log.kinds()["sandbox.violation"])
	require.True(t, slices.ContainsFunc(w.log.texts(), func(s string) bool { return strings.HasPrefix(s, "driver mock0 epoch=1 pid=") }))
}

// A gate that is not confined gets no client, and the client is told why.
func TestGateThatIsNotConfined(t *testing.T) {
	w := start(t, func(c *manager.Config) {
		c.GatePath = stranger(t)
		c.Policy.Sandbox.Require = []sandbox.Mechanism{sandbox.Seccomp}
	})
	w.driver(1)
	c := w.begun("default")
	defer c.Close()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	said := make([]byte, 4096)
	n, err := c.Read(said)
	require.NoError(t, err)
	require.Contains(t, string(said[:n]), "E_DENIED: the gate is not confined as the policy requires")
	w.noConnections(1)
}

// limitOf reads a limit of a process's cgroup. Without such a file the test is skipped.
func limitOf(t *testing.T, pid int, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			if value, err := os.ReadFile(filepath.Join(mount, path, file)); ok && err == nil {
				return strings.TrimSpace(string(value))
			}
		}
	}
	t.Skipf("NOT TESTED: no %s", file)
	return ""
}

// A ready gate may use no memory that is granted to tenants; with its client it gets the
// limits of that tenant.
func TestGateHasItsTenantsLimits(t *testing.T) {
	w := start(t, func(c *manager.Config) {
		c.Policy.Device.HugePages = true
		c.Policy.Tenant("default").Limits[ledger.DeviceMemory] = 256 << 20
		c.Policy.Tenant("limited").Limits[ledger.DeviceMemory] = 4 << 20
	})
	w.driver(1)
	require.Eventually(t, func() bool { return len(waitingGates(t)) == 3 }, patience, time.Millisecond)
	require.Equal(t, "0", limitOf(t, waitingGates(t)[0], "hugetlb.2MB.max"))
	for tenant, bytes := range map[string]string{"default": "268435456", "limited": "4194304"} {
		c := w.begun(tenant)
		require.Eventually(t, func() bool { return len(gates(t)) == 1 }, patience, time.Millisecond)
		require.Equal(t, bytes, limitOf(t, gates(t)[0], "hugetlb.2MB.max"), tenant)
		c.Close()
		require.Eventually(t, func() bool { return len(gates(t)) == 0 }, patience, time.Millisecond)
	}
}
