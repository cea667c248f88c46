// Package devicetest is the suite that every host.Device must pass.
//
// It knows the contract of package host and nothing of a vendor's library. It compiles the
// kernels of the library, and some of its own, as the core does (verify, instrument), and
// compares what they leave with the lane engine and with plain Go:
//
//	func TestDevice(t *testing.T) {
//		devicetest.Run(t, func(t *testing.T) host.Device { … })
//	}
//
// A test needs a device of its own, which the suite closes. Client memory is a sealed memfd
// that the test has mapped twice: as the engine process has it, and as the client.
//
// Files: kit.go the orders of a test, program.go programs, memory.go memory; then the tests:
// launch.go, early.go, ahead.go, stop.go, bytes.go, local.go, residue.go, library.go.
package devicetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
)

// test is one test of the suite.
type test struct {
	name  string
	local bool // it needs local memory
	run   func(k *kit)
}

var tests = []test{
	{name: "Describe", run: describe},
	{name: "Launch", run: launch},
	{name: "Dependency", run: dependency},
	{name: "Bindings", run: bindings},
	{name: "LongList", run: longList},
	{name: "Coherence", run: coherence},
	{name: "Early", run: early},
	{name: "EarlyOfOneEntry", run: earlyOfOneEntry},
	{name: "Rounds", run: rounds},
	{name: "Slots", run: slots},
	{name: "Ahead", run: ahead},
	{name: "SameListAhead", run: sameListAhead},
	{name: "SameListEndsEarly", run: sameListEndsEarly},
	{name: "SkippedUntilResume", run: skippedUntilResume},
	{name: "ToldAtOnce", run: toldAtOnce},
	{name: "Stop", run: stop},
	{name: "StopOfRunsBefore", run: stopOfRunsBefore},
	{name: "Copies", run: copies},
	{name: "CopiesOverlap", run: copiesOverlap},
	{name: "Fills", run: fills},
	{name: "Neighbours", run: neighbours},
	{name: "Residue", run: residue},
	{name: "Library", run: libraryKernels},
	{name: "Local", local: true, run: localIsZero},
	{name: "LocalCopies", local: true, run: localCopies},
	{name: "LocalQuota", local: true, run: localQuota},
}

// Run runs the suite. inapplicable names the tests that this device has not what they need
// for: "Local". The suite fails if they are others.
func Run(t *testing.T, open func(t *testing.T) host.Device, inapplicable ...string) {
	d := open(t)
	local := d.Describe().LocalBytes > 0
	require.NoError(t, d.Close())

	var left []string
	for _, test := range tests {
		if test.local && !local {
			left = append(left, test.name)
			continue
		}
		t.Run(test.name, func(t *testing.T) { test.run(newKit(t, open(t))) })
	}

	slices.Sort(inapplicable)
	slices.Sort(left)
	require.Equal(t, inapplicable, left, "tests that the device has not what they need for")
}
