package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
)

func TestStateText(t *testing.T) {
	for want, d := range map[string]client.DeviceInfo{
		"ready":           {State: client.Ready, Epoch: 1, Generation: 1},
		"ready (epoch 3)": {State: client.Ready, Epoch: 3, Generation: 1},
		"ready, suspended (epoch 1, generation 2)": {State: client.Ready, Epoch: 1, Generation: 2, Suspended: true},
		"ready, cancelling":                        {State: client.Ready, Epoch: 1, Recovery: client.RecoveryCancelling},
		"recovering (epoch 2)":                     {State: client.Recovering, Epoch: 2, Recovery: client.RecoveryRespawn},
	} {
		require.Equal(t, want, stateText(d))
	}
}

// A device that is not ready is not asked, and one that refuses says why; the list is whole
// all the same.
func TestDescribeDevicesThatDoNotAnswer(t *testing.T) {
	socket := serveDevices(t, 1, 3)
	i := gpuctl(t.Context(), nil, false, "--socket", socket, "devices", "--describe")
	require.Zero(t, i.exit, i.err.String())
	require.Regexp(t, `edu0 .* - +- +-\n`, i.out.String())
	require.Regexp(t, `edu1 .* - +- +-\n`, i.out.String())
	require.Contains(t, i.out.String(), "edu0 does not describe itself: E_UNIMPLEMENTED")
	require.NotContains(t, i.out.String(), "edu1 does not")

	i = gpuctl(t.Context(), nil, false, "--socket", socket, "--json", "devices", "--describe")
	require.Zero(t, i.exit, i.err.String())
	require.NotContains(t, i.out.String(), "description")
}

func TestDescriptionColumns(t *testing.T) {
	require.Equal(t, []string{"-", "8 B", "4", "yes"}, (&descriptionJSON{8, 0, 0, 4, true}).row())
	require.Equal(t, []string{"1.0 MiB", "16 B", "-", "no"}, (&descriptionJSON{16, 0, 1 << 20, 0, false}).row())
}
