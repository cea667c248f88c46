package main

import (
	"bytes"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpu/backend/engine/enginetest"
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
	_, err := open(ddf.GrantSet{Device: ddf.DeviceInfo{Name: "mock0", Fake: true}}, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.ErrorContains(t, err, "gpu-mock")
	_, err = open(ddf.GrantSet{Device: ddf.DeviceInfo{PCIAddress: "0000:00:01.0", VendorID: 0x10de, DeviceID: 0x2330}}, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.ErrorContains(t, err, "10de:2330")
	require.ErrorContains(t, err, "--driver")
}

// A function with engine processes is driven through them, whatever it is.
func TestOpensEngines(t *testing.T) {
	engines := enginetest.Start(t, 2, nil)
	pool, err := fake.New(fake.Options{})
	require.NoError(t, err)
	grants := pool.Grants()
	grants.Device, grants.Engines = ddf.DeviceInfo{Name: "lane0"}, engines
	b, err := open(grants, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Contains(t, b.Programs(), "vecadd_f32")
	require.NoError(t, b.Close())
	require.NoError(t, pool.Close())
}

func TestOpensEdu(t *testing.T) {
	require.Contains(t, usage, "1234:11e8")
	m, err := edutest.New(edutest.Options{})
	require.NoError(t, err)
	b, err := open(m.Grants(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Equal(t, []string{"edu.factorial"}, b.Programs())
	require.NoError(t, b.Close())
	require.NoError(t, m.Close())
	_, err = open(m.Grants(), slog.New(slog.DiscardHandler)) // the grants were revoked
	require.ErrorIs(t, err, gpuerr.Revoked)
}

// Nobody can make a hardware driver run code that it does not link: programs run in engine
// processes.
func TestHoldsNoEngine(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, pkg := range strings.Fields(string(out)) {
		for _, other := range []string{"program/lane", "program/native", "gpu/backend/mock", "ddf/fake"} {
			require.False(t, pkg == "capgpu/"+other || strings.HasPrefix(pkg, "capgpu/"+other+"/"), "it links %s", pkg)
		}
	}
}
