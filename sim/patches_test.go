package sim

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// patches are mistakes in the real code. A simulation must find each of them.
var patches = []struct{ name, file, was, is string }{
	{"a completion is believed whatever its id", "gpu/sent.go", "j != nil && j.work.ID == id", "j != nil"},
	{"ok is told before faults are known", "gpu/complete.go", "case (r.traits.settles || r.recovery.mustReset) && (", "case r.recovery.mustReset && ("},
	{"what was reset away is ok", "gpu/reset.go", "x := ending{j: j, how: resetOutcome}", "x := ending{j: j, how: outcome.Success}"},
	{"a point forgets what it stands for", "gpu/retire.go", "how := outcome.Worse(q.outlet.group, j.atLeast)", "how := outcome.Success"},
	{"carved memory is not scrubbed", "gpu/memory.go", "if err := x.dma.Scrub(x.off, x.bytes); err != nil {", "if x.dma == nil {"},
	{"bans last too long", "gpu/ban.go", "until := time.Now().Add(p.Ban)", "until := time.Now().Add(10 * p.Ban)"},
	{"the client does not wake the driver", "ring/push.go", "if c.asked(waitEntries) {", "if c.asked(waitEntries) && false {"},
	{"the driver does not wake the client", "ring/complete.go", "if s.publish(cs) {", "if s.publish(cs) && false {"},
	{"a queue that was held is not looked at again", "gpu/reactor.go", "if q.poll.held && q.mayBegin() {", "if q.poll.held && q.poll.deaf {"},
	{"the reactor sleeps through its mail", "gpu/mailbox.go", "m.asleep.CompareAndSwap(true, false) {", "m.asleep.CompareAndSwap(true, false) && false {"},
	{"a buffer's charge stays", "gpu/buffer.go", "if !b.stuck {\n\t\tb.refund()", "if b.stuck {\n\t\tb.refund()"},
	{"a function is not stopped", "manager/epoch.go", "if began {", "if began && g == nil {"},
	{"memory's charge stays with the manager", "manager/dma.go", "d.freeErr = g.dispose(d)", "d.freeErr = nil"},
	{"what depends on a failure runs", "gpu/failure.go", "return q.intake.failed > 0 || q.session.failures.untold > 0 || pos < q.intake.doomed", "return false"},
	{"what the device had behind a failure is ok", "gpu/failure.go", "k.flight.broken, any = true, true", "any = true"},
	{"what was published before a failure was told runs", "gpu/failure.go", "other.intake.doomed = max(other.intake.doomed, after[i])", "other.intake.doomed = min(other.intake.doomed, after[i])"},
	{"what waits behind a failure runs", "gpu/failure.go", "q.session.dev.reactor.unready(other, anyJob)", "q.session.dev.reactor.unready(other, func(*job) bool { return false })"},
	{"a client that goes back is served", "ring/look.go", "if tail-s.seenTail > uint64(s.Entries) || tail-s.taken > uint64(s.Entries) {\n\t\treturn s.failLocked(errTail)\n\t}", ""},
}

// TestPatchesAreFound builds the simulation once for each patch, which takes
// minutes: CAPGPU_SIM_PATCHES=1.
func TestPatchesAreFound(t *testing.T) {
	if os.Getenv("CAPGPU_SIM_PATCHES") == "" {
		t.Skip("CAPGPU_SIM_PATCHES=1 runs it")
	}
	for _, p := range patches {
		t.Run(p.name, func(t *testing.T) {
			path, err := filepath.Abs(filepath.Join("..", p.file))
			require.NoError(t, err)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), p.was), "the patch does not fit %s any more", p.file)
			dir := t.TempDir()
			patched, overlay, bin := filepath.Join(dir, "patched.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "test")
			require.NoError(t, os.WriteFile(patched, []byte(strings.Replace(string(text), p.was, p.is, 1)), 0o600))
			replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: patched}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, replace, 0o600))
			out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, ".").CombinedOutput()
			require.NoError(t, err, string(out))
			run := exec.Command(bin, "-test.run", "^TestSweep$", "-test.timeout", "2m")
			run.Env = append(os.Environ(), "CAPGPU_SIM_SEEDS=100", "CAPGPU_SIM_SEED=")
			out, err = run.CombinedOutput()
			require.Error(t, err, "not found in 100 seeds:\n%s", out)
			first, _, _ := bytes.Cut(out, []byte("\nclass"))
			t.Logf("%.400s", first)
		})
	}
}
