package manager

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPolicyOfNodes(t *testing.T) {
	p, err := ParsePolicy([]byte(`{"functions": [
		{"kind": "vulkan", "address": "0000:01:00.0", "name": "gpu0", "nodes": ["/dev/nvidiactl", "/dev/nvidia0"], "engine": "/opt/engine", "icd": "/etc/vulkan/icd.d/nvidia.json",
		 "libraries": ["/usr/lib", "/lib64"], "files": ["/sys/module/nvidia/initstate"], "proc": true, "engines": {"most": 8, "memory": "1GiB"}, "memory": "2MiB", "optional": true},
		{"kind": "vulkan", "name": "lavapipe", "nodes": []}, {"kind": "lane", "name": "lane"}, {"kind": "pci", "address": "0000:02:00.0"}],
		"tenants": [{"name": "a", "allowedUids": "any", "devices": ["gpu0"]}]}`))
	require.NoError(t, err)
	require.True(t, p.Hardware())
	f := p.Functions[0]
	require.Equal(t, &NodePolicy{
		Kind: "vulkan", Nodes: []string{"/dev/nvidiactl", "/dev/nvidia0"}, Engine: "/opt/engine", ICD: "/etc/vulkan/icd.d/nvidia.json",
		Libraries: []string{"/usr/lib", "/lib64"}, Files: []string{"/sys/module/nvidia/initstate"}, Proc: true, Most: 8, EngineBytes: 1 << 30,
	}, f.Node)
	require.EqualValues(t, 2<<20, f.MemoryBytes)
	require.Zero(t, f.Vectors)
	require.Equal(t, &NodePolicy{Kind: "vulkan", Most: 4, EngineBytes: 2 << 30}, p.Functions[1].Node)
	require.Equal(t, "lane", p.Functions[2].Node.Kind)
	require.Nil(t, p.Functions[3].Node)
	require.Len(t, pciFunctions(p.Functions), 1)

	p, err = ParsePolicy([]byte(`{"functions": [{"kind": "lane", "name": "lane"}], "tenants": [{"name": "a", "allowedUids": "any"}]}`))
	require.NoError(t, err)
	require.False(t, p.Hardware())
	require.False(t, p.fake())

	for in, want := range map[string]string{
		`{"kind": "cuda", "name": "x"}`:                                                        `functions[0].kind must be "pci"`,
		`{"kind": "vulkan"}`:                                                                   "functions[0] has no name",
		`{"kind": "vulkan", "nodes": ["/dev/x"], "name": "x"}`:                                 "has nodes and no address",
		`{"kind": "vulkan", "address": "0000:01:00.0"}`:                                        "has an address and no nodes",
		`{"kind": "vulkan", "address": "0000:01:00.0", "nodes": ["/etc/passwd"]}`:              "/etc/passwd is not below /dev",
		`{"kind": "vulkan", "name": "x", "nodes": ["/dev/../etc"]}`:                            "as short as it can be written",
		`{"kind": "vulkan", "name": "x", "libraries": ["/"]}`:                                  "absolute path below /",
		`{"kind": "vulkan", "name": "x", "files": ["/a", "/a"]}`:                               "has /a twice",
		`{"kind": "vulkan", "name": "x", "files": "/a"}`:                                       "must be a list of at most 64",
		`{"kind": "vulkan", "name": "x", "windows": [{"bar": 0, "bytes": "4KiB"}]}`:            "functions[0].windows is of PCI functions",
		`{"kind": "vulkan", "name": "x", "vectors": 1}`:                                        "functions[0].vectors is of PCI functions",
		`{"address": "0000:01:00.0", "icd": "/x"}`:                                             `functions[0].icd is of functions with nodes; add "kind": "vulkan"`,
		`{"kind": "vulkan", "name": "x", "engines": {"most": 0}}`:                              "a whole number from 1 to 16",
		`{"kind": "vulkan", "name": "x", "engines": {"max": 0}}`:                               "functions[0].engines has no field",
		`{"kind": "vulkan", "name": "x", "driver": "relative"}`:                                "must be an absolute path",
		`{"kind": "vulkan", "name": "x"}, {"kind": "vulkan", "name": "x"}`:                     "is here twice",
		`{"kind": "vulkan", "name": "x", "engine": "` + "/" + strings.Repeat("x", 1024) + `"}`: "absolute path below /",
	} {
		_, err := ParsePolicy([]byte(`{"functions": [` + in + `], "tenants": [{"name": "a", "allowedUids": "any"}]}`))
		require.ErrorContains(t, err, want, in)
	}
}
