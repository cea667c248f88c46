package qemu

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func hardwareLogTo(t *testing.T) Hardware { return Hardware{Line: lineTo(t), Logf: t.Logf} }

// TestHardwareGuest is the proof that real hardware is driven as it should: see doc.go.
// CAPGPU_HW_KILLS drivers are killed, 30 if that is not set; "make run-gpu-edu" kills
// 100.
func TestHardwareGuest(t *testing.T) {
	needVM(t)
	kills := "30"
	if v := os.Getenv("CAPGPU_HW_KILLS"); v != "" {
		kills = v
	}
	guestRuns(t, func() error {
		start := time.Now()
		h := hardwareLogTo(t)
		h.Args = []string{"capgpu.kills=" + kills}
		checks, _, err := h.Run(t.Context())
		t.Logf("%d checks in %v", checks, time.Since(start).Round(100*time.Millisecond))
		return err
	})
}

// TestHardwareGuestFailsWhenItShould breaks one thing at a time.
func TestHardwareGuestFailsWhenItShould(t *testing.T) {
	needVM(t)
	for broken, wantErr := range map[string]string{
		"bit":       "- the device's own DMA copies, byte for byte: the copy differs",
		"bystander": "- bob works on while alice misbehaves: data of the tenant of edu1 have changed",
		"scrub":     "- memory of a closed session and of a dead driver is scrubbed: look at all memory",
		"policy":    "- stray DMA is stopped",
		"leak":      "- ledger is at zero after every close",
		"unplug":    "- a function that is pulled out is deviceLost at once",
	} {
		t.Run(broken, func(t *testing.T) {
			h := hardwareLogTo(t)
			h.Break = broken
			_, transcript, err := h.Run(t.Context())
			require.ErrorContains(t, err, "not ok ")
			require.ErrorContains(t, err, wantErr)
			_, verdictErr := transcript.Verdict()
			require.Error(t, verdictErr, "the guest gave a verdict PASS")
		})
	}
}

func TestHardwareGoldenEndsWithTheVerdict(t *testing.T) {
	g := HardwareGolden()
	require.Greater(t, len(g), 10, "expected lines")
	require.Equal(t, "capgpu-hw: PASS {n} checks", g[len(g)-1])
}
