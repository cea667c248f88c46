package qemu

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// needVM skips a test where no virtual machine can run, unless one is required.
func needVM(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a virtual machine")
	}
	if _, err := exec.LookPath(VM{}.qemu()); err != nil && os.Getenv("CAPGPU_REQUIRE_VM") == "" {
		t.Skipf("%v; `make test` installs it", err)
	}
}

// lineTo logs a guest's output, with the seconds since now.
func lineTo(t *testing.T) func(line string) {
	start := time.Now()
	return func(line string) { t.Logf("%6.1f %s", time.Since(start).Seconds(), line) }
}

func logTo(t *testing.T) Smoke { return Smoke{Line: lineTo(t), Logf: t.Logf} }

// TestSmokeGuest is the proof that the whole of it works: see doc.go.
func TestSmokeGuest(t *testing.T) {
	needVM(t)
	guestRuns(t, func() error {
		start := time.Now()
		checks, _, err := logTo(t).Run(t.Context())
		t.Logf("%d checks in %v", checks, time.Since(start).Round(100*time.Millisecond))
		return err
	})
}

// TestSmokeGuestFailsWhenItShould breaks one thing at a time.
func TestSmokeGuestFailsWhenItShould(t *testing.T) {
	needVM(t)
	tests := []struct {
		broken  string
		wantErr string
	}{
		{"vecadd", "not ok "},                     // one wrong bit in a result
		{"driver", "not ok "},                     // the driver dies of a client's message
		{"model", "not ok "},                      // wrong weights
		{"leak", "not ok "},                       // a session that is never closed
		{"manager", "device-manager ended early"}, // it cannot start
		{"panic", "the guest died: "},             // init exits
		{"hang", "the guest did not power off"},   // nothing happens any more
		{"silent", "not one verdict PASS"},        // the guest powers off without a verdict
	}
	for _, tt := range tests {
		t.Run(tt.broken, func(t *testing.T) {
			s := logTo(t)
			s.Break = tt.broken
			if tt.broken == "hang" {
				s.Silence = 3 * time.Second // from init's first line on: how long the boot takes is nothing to it
			}
			_, transcript, err := s.Run(t.Context())
			// The kernel alone makes the end of these, and the emulator may stand still
			// there.
			for boots := 1; boots < maxBoots && errors.Is(err, ErrTimeout) && (tt.broken == "panic" || tt.broken == "silent"); boots++ {
				t.Logf("again: %v", err)
				_, transcript, err = s.Run(t.Context())
			}
			require.ErrorContains(t, err, tt.wantErr)
			require.NotEmpty(t, transcript)
			_, verdictErr := transcript.Verdict()
			require.Error(t, verdictErr, "the guest gave a verdict PASS")
			if tt.broken == "hang" { // the cause of the hang is reported
				for _, words := range []string{"qemu: VM status: running", "HLT=", "dumping local APIC state for CPU 1", "Kernel panic - not syncing: NMI", "Call Trace:", "do_sys_pause|ia32_sys_pause|__x64_sys_pause"} {
					require.True(t, slices.ContainsFunc(transcript, regexp.MustCompile(words).MatchString), "nothing tells of %q", words)
				}
			}
		})
	}
}
