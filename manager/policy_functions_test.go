package manager

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
)

func TestPolicyExampleOfFunctions(t *testing.T) {
	data, err := os.ReadFile("../packaging/policy-hardware.json")
	require.NoError(t, err)
	p, err := ParsePolicy(data)
	require.NoError(t, err)
	require.True(t, p.Hardware())
	require.False(t, p.ClaimAll)
	require.Equal(t, []FunctionPolicy{
		{
			Name: "edu0", Address: "0000:01:00.0", MemoryBytes: 64 << 20, IOVAEntries: 1024, DMABits: 28,
			Windows: []ddf.WindowSpec{{Bytes: 4096, Writable: true}}, Vectors: 1, InterruptLimit: 200_000, Respawn: p.Device.Respawn,
		},
		{
			Name: "gpu0", Address: "0000:41:00.0", Optional: true, Driver: "/usr/libexec/capgpu/gpu-service", MemoryBytes: 8 << 30, IOVAEntries: 16384,
			Windows: []ddf.WindowSpec{{Bytes: 16 << 20, Writable: true}, {Bar: 2, Offset: 64 << 10, Bytes: 4096, Doorbells: []uint64{0, 64}}},
			Vectors: 4, InterruptLimit: 500_000, Respawn: RespawnPolicy{Budget: 3, Window: 5 * time.Minute, FirstDelay: 20 * time.Millisecond, MaxDelay: 5 * time.Second, Standby: true},
		},
	}, p.Functions)
	require.True(t, p.Tenant("default").mayUse("gpu0"))
	require.True(t, p.Tenant("lab").mayUse("edu0"))
	require.False(t, p.Tenant("lab").mayUse("gpu0"))
}

// A policy without functions has the fake one, with any values of device.
func TestFakePolicy(t *testing.T) {
	p, err := ParsePolicy([]byte(`{"device": {"memory": "2MiB"}, "tenants": [{"name": "a", "allowedUids": "any", "devices": ["mock0"]}]}`))
	require.NoError(t, err)
	require.False(t, p.Hardware())
	f := p.named()
	require.Len(t, f, 1)
	require.Equal(t, "mock0", f[0].Name)
	require.Empty(t, f[0].Address)
	require.EqualValues(t, 2<<20, f[0].MemoryBytes)

	p, err = ParsePolicy([]byte(`{"claim": "all", "tenants": [{"name": "a", "allowedUids": "any", "devices": ["0000:01:00.0"]}]}`))
	require.NoError(t, err)
	require.True(t, p.Hardware())
	require.Empty(t, p.named())
}

// Functions inherit from device, wherever it stands in the file.
func TestFunctionsInherit(t *testing.T) {
	p, err := ParsePolicy([]byte(`{"functions": [{"address": "0000:01:00.0"}], "tenants": [{"name": "a", "allowedUids": "any"}], "device": {"memory": "3MiB", "hugePages": true, "interruptLimit": 7}}`))
	require.NoError(t, err)
	require.EqualValues(t, 3<<20, p.Functions[0].MemoryBytes)
	require.EqualValues(t, 7, p.Functions[0].InterruptLimit)
	require.True(t, p.Functions[0].HugePages)
	require.Equal(t, "0000:01:00.0", p.Functions[0].Name)
}

func TestFunctionPolicyErrors(t *testing.T) {
	one := func(fields string) string { return `{"functions": [{"address": "0000:01:00.0", ` + fields + `}]}` }
	for name, c := range map[string][2]string{
		"no list":         {`{"functions": {}}`, "functions must be a list"},
		"no address":      {`{"functions": [{"name": "a"}]}`, `functions[0] has no address`},
		"short address":   {`{"functions": [{"address": "01:00.0"}]}`, "must be a PCI address with its domain"},
		"upper case":      {`{"functions": [{"address": "0000:0A:00.0"}]}`, "in lower case"},
		"twice":           {`{"functions": [{"address": "0000:01:00.0", "name": "a"}, {"address": "0000:01:00.0", "name": "b"}]}`, "is here twice"},
		"same name":       {`{"functions": [{"address": "0000:01:00.0", "name": "a"}, {"address": "0000:02:00.0", "name": "a"}]}`, "is here twice"},
		"another's name":  {one(`"name": "0000:02:00.0"`), "is an address, and another one's"},
		"bad name":        {one(`"name": "a b"`), "must be 1 to 32 of a-z"},
		"driver":          {one(`"driver": "gpu-service"`), "must be an absolute path"},
		"huge pages":      {one(`"hugePages": 1`), "must be true or false"},
		"bits":            {one(`"dmaBits": 20`), "from 21 to 64"},
		"vectors":         {one(`"vectors": 2049`), "from 0 to 2048"},
		"limit":           {one(`"interruptLimit": 0`), "whole number from 1"},
		"optional":        {one(`"optional": 1`), "must be true or false, not a number"},
		"no windows":      {one(`"windows": []`), "a list of 1 to 6 windows"},
		"small window":    {one(`"windows": [{"bar": 0, "bytes": 100}]`), "must be multiples of 4096"},
		"no bytes":        {one(`"windows": [{"bar": 0}]`), "bytes more than 0"},
		"BAR":             {one(`"windows": [{"bar": 6, "bytes": 4096}]`), "from 0 to 5"},
		"BAR twice":       {one(`"windows": [{"bar": 1, "bytes": 4096}, {"bar": 1, "offset": 4096, "bytes": 4096}]`), "BAR 1 is here twice"},
		"doorbell":        {one(`"windows": [{"bar": 1, "bytes": 4096, "doorbells": [4096]}]`), "doorbell 4096 is not a register"},
		"crooked bell":    {one(`"windows": [{"bar": 1, "bytes": 4096, "doorbells": [2]}]`), "doorbell 2 is not a register"},
		"respawn":         {one(`"respawn": {"firstDelay": "9s"}`), "functions[0].respawn.firstDelay (9s) is longer than maxDelay"},
		"claim":           {`{"claim": "some"}`, `claim must be "named"`},
		"no devices":      {`{"tenants": [{"name": "a", "devices": []}]}`, "leave it out for all"},
		"unknown device":  {`{"tenants": [{"name": "a", "allowedUids": "any", "devices": ["edu0"]}]}`, `tenant "a" may use "edu0", and no function has that name; there are: [mock0]`},
		"unknown, of all": {`{"claim": "all", "tenants": [{"name": "a", "allowedUids": "any", "devices": ["edu0"]}]}`, "no function has that name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(c[0]))
			require.ErrorContains(t, err, c[1])
			require.Regexp(t, `^line 1, column \d+: `, err.Error())
		})
	}
}
