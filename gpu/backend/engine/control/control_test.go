package control

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
)

func device() *wire.Device {
	return &wire.Device{
		Name: "a device", OffsetAlign: 16, SubgroupSize: 32, MaxThreadsPerBlock: 1024,
		MaxBlock: program.Dim3{X: 1024, Y: 1024, Z: 64}, MaxGrid: program.Dim3{X: 65535, Y: 65535, Z: 65535},
		MaxBindings: 33, MaxPushBytes: 256, MaxBindingBytes: 1 << 27,
	}
}

func TestMessages(t *testing.T) {
	n := uint64(1<<64 - 1)
	for _, m := range []FromEngine{{Ready: device()}, {Failed: "the loop ended after 65535 rounds"}, {Tested: &n}} {
		got, err := ParseFromEngine(m.Bytes())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}

	require.Equal(t, `{"test":7}`, string(ToEngine{Test: new(uint64(7))}.Bytes()))
	got, err := ParseToEngine([]byte(`{"test":7}`))
	require.NoError(t, err)
	require.EqualValues(t, 7, *got.Test)

	long, err := ParseFromEngine(FromEngine{Failed: strings.Repeat("\x00", 1<<20)}.Bytes())
	require.NoError(t, err)
	require.NotEmpty(t, long.Failed)
}

func TestRefusals(t *testing.T) {
	for _, bad := range []string{``, `{}`, `[]`, `{"ready":{}}`, `{"failed":"x","tested":1}`, `{"tested":-1}`, strings.Repeat(" ", MaxBytes+1)} {
		_, err := ParseFromEngine([]byte(bad))
		require.Error(t, err, "%.40q", bad)
	}
	for _, bad := range []string{``, `{}`, `{"test":"x"}`} {
		_, err := ParseToEngine([]byte(bad))
		require.Error(t, err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(FromEngine{Ready: device()}.Bytes())
	f.Add([]byte(`{"tested":1}`))
	f.Add([]byte(`{"test":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseFromEngine(b); err == nil {
			again, err := ParseFromEngine(m.Bytes())
			require.NoError(t, err)
			require.Equal(t, m.Ready == nil, again.Ready == nil)
			require.Equal(t, m.Tested, again.Tested)
		}
		if m, err := ParseToEngine(b); err == nil {
			require.NotNil(t, m.Test)
		}
	})
}
