package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

func TestByHand(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run([]string{"--help"}, &out, &errs))
	require.Contains(t, out.String(), "gpu-service")
	require.Equal(t, 2, run([]string{"--nonsense"}, &out, &errs))
	errs.Reset()
	require.Equal(t, 1, run(nil, &out, &errs))
	require.Contains(t, errs.String(), "a driver is started by device-manager")
	require.Contains(t, errs.String(), "descriptor 3 is not the supervision link")
	require.Contains(t, errs.String(), "the grant set is missing: descriptor 4 is not the grant link")
}

func TestOpenRefuses(t *testing.T) {
	_, err := open(ddf.GrantSet{Device: ddf.DeviceInfo{Name: "mock0", Fake: true}})
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.ErrorContains(t, err, "gpu-mock")
	_, err = open(ddf.GrantSet{Device: ddf.DeviceInfo{PCIAddress: "0000:00:01.0", VendorID: 0x10de, DeviceID: 0x2330}})
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.ErrorContains(t, err, "10de:2330")
	require.ErrorContains(t, err, "--driver")
}
