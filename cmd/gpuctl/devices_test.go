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
