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
	{"a completion is believed whatever its id", "gpu/complete.go", "j == nil || j.work.ID != c.ID || j.said", "j == nil || j.said"},
	{"ok is told before faults are known", "gpu/complete.go", "case (e.settles || e.mustReset) && (", "case e.mustReset && ("},
	{"what was reset away is ok", "gpu/reset.go", "x := ending{j: j, how: resetOutcome}", "x := ending{j: j, how: outcome.Success}"},
	{"a point forgets what it stands for", "gpu/submit.go", "how := outcome.Worse(q.group, j.atLeast)", "how := outcome.Success"},
	{"carved memory is not scrubbed", "gpu/memory.go", "if err := x.dma.Scrub(x.off, x.bytes); err != nil {", "if x.dma == nil {"},
	{"bans last too long", "gpu/ban.go", "until := time.Now().Add(p.Ban)", "until := time.Now().Add(10 * p.Ban)"},
	{"the client does not wake the driver", "ring/push.go", "if c.asked(waitEntries) {", "if c.asked(waitEntries) && false {"},
	{"the driver does not wake the client", "ring/complete.go", "if s.publish(cs) {", "if s.publish(cs) && false {"},
	{"a queue is not woken", "gpu/queue.go", "if q.sleeping.Load() {", "if q.sleeping.Load() && q.armed {"},
	{"a buffer's charge stays", "gpu/buffer.go", "if !b.stuck {\n\t\tb.refund()", "if b.stuck {\n\t\tb.refund()"},
	{"a function is not stopped", "manager/epoch.go", "if began {", "if began && g == nil {"},
	{"memory's charge stays with the manager", "manager/dma.go", "d.freeErr = g.dispose(d)", "d.freeErr = nil"},
	{"what reads spoiled memory runs", "gpu/job.go", "if j.queue.session.spoils.hits(j) {", "if j.queue == nil {"},
	{"nothing is held back behind what it reads", "gpu/fair.go", "if f.sent == 0 {\n\t\treturn false", "if f.sent >= 0 {\n\t\treturn false"},
	{"what is told is forgotten at once", "gpu/spoil.go", "all >= since || told[b] >= since || ", "all > 1<<62 || told == nil || "},
	{"what was not begun spoils nothing", "gpu/submit.go", "} else if j.how.Kind != outcome.OK {\n\t\t\tq.spoilEntry(j, t)\n\t\t}", "}"},
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
