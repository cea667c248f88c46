package iocpu_test

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/iocpu"
	"capgpu/gpuerr"
)

// examples have every field that is mandatory, and no other.
var examples = []string{
	`{"msg_type": "MemoryWrite", "correlation_id": "c", "request_id": "r", "target_device": "sip:0", "dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "pattern", "pattern": {"pattern_kind": "fill_u8", "value": 1}}`,
	`{"msg_type": "MemoryRead", "correlation_id": "c", "request_id": "r", "target_device": "sip:0", "src_sip": 0, "src_cube": 0, "src_pe": 0, "src_pa": 0, "nbytes": 4}`,
	`{"msg_type": "KernelLaunch", "correlation_id": "c", "request_id": "r", "target_device": "sip:0", "kernel_ref": {"name": "k", "kind": "deployed", "deploy_pa": 0, "deploy_sip": 0, "deploy_cube": 0, "deploy_pe": 0, "nbytes_code": 4},
	  "args": [{"arg_kind": "tensor", "tensor_pa_map": {"shards": [{"sip": 0, "cube": 0, "pe": 0, "pa": 0, "nbytes": 4, "offset_bytes": 0}]}}, {"arg_kind": "scalar", "dtype": "i32", "value": 1}]}`,
}

// TestEveryMandatoryField: one by one they are left out, misspelt, null and of another type.
func TestEveryMandatoryField(t *testing.T) {
	mutations := 0
	for _, example := range examples {
		_, err := iocpu.Parse([]byte(example))
		require.NoError(t, err, example)
		var tree any
		require.NoError(t, json.Unmarshal([]byte(example), &tree))
		walk(tree, func(o map[string]any, name string) {
			value := o[name]
			for _, wrong := range []any{nil, []any{}, 1.5, -1.0, true, "1"} {
				if _, scalar := o["dtype"]; scalar && wrong == -1.0 && name == "value" {
					continue
				}
				if _, text := value.(string); text && wrong == "1" && (name == "correlation_id" || name == "request_id" || name == "target_device" || name == "name") {
					continue
				}
				o[name] = wrong
				refused(t, tree, name)
				mutations++
			}
			delete(o, name)
			refused(t, tree, name)
			o[strings.ToUpper(name)] = value
			refused(t, tree, name)
			delete(o, strings.ToUpper(name))
			o[name] = value

			o["extra"] = nil
			refused(t, tree, "extra")
			delete(o, "extra")
		})
	}
	require.Greater(t, mutations, 200)
}

func walk(tree any, visit func(o map[string]any, name string)) {
	switch v := tree.(type) {
	case map[string]any:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		for _, name := range names {
			walk(v[name], visit)
			visit(v, name)
		}
	case []any:
		for _, item := range v {
			walk(item, visit)
		}
	}
}

func refused(t *testing.T, tree any, name string) {
	t.Helper()
	text, err := json.Marshal(tree)
	require.NoError(t, err)
	_, err = iocpu.Parse(text)
	require.ErrorIs(t, err, gpuerr.Invalid, "%s", text)
	if name != "msg_type" { // without it nothing else is known
		path, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "E_INVALID: "), ": ")
		require.Contains(t, path, name, "%s: %v", text, err)
	}
}

func TestNumbers(t *testing.T) {
	pattern := func(kind, value string) error {
		_, err := iocpu.Parse([]byte(strings.Replace(examples[0], `"fill_u8", "value": 1`, `"`+kind+`", "value": `+value, 1)))
		return err
	}
	for _, c := range []struct {
		kind, value string
		ok          bool
	}{
		{"fill_u8", "255", true}, {"fill_u8", "256", false}, {"fill_u8", "1.0", false}, {"fill_u8", "1e2", false}, {"fill_u8", "-1", false},
		{"fill_u16", "65535", true}, {"fill_u16", "65536", false}, {"fill_u32", "4294967295", true}, {"fill_u32", "4294967296", false},
		{"fill_fp16", "65519", true}, {"fill_fp16", "65520", false}, {"fill_fp16", "-65504", true}, {"fill_fp16", `"1"`, false}, {"fill_fp16", "true", false},
		{"fill_fp32", "3.4e38", true}, {"fill_fp32", "3.5e38", false}, {"fill_fp32", "null", false}, {"zero", "null", true}, {"zero", `"x"`, true},
	} {
		require.Equal(t, c.ok, pattern(c.kind, c.value) == nil, "%s %s", c.kind, c.value)
	}
	for _, line := range []string{"", "null", "[]", "{", "1", `{"msg_type": "MemoryRead", "msg_type": "MemoryRead"}`, "\xff", strings.Replace(examples[1], `"c"`, "\"\xff\"", 1), examples[1] + "{}"} {
		_, err := iocpu.Parse([]byte(line))
		require.ErrorIs(t, err, gpuerr.Invalid, "%q", line)
	}
}

// TestHalf compares binary16 with a search among all of its values.
func TestHalf(t *testing.T) {
	for _, f := range []float64{0, 1, -0.1, 65504, 65519.9, 0.333333, 5.96e-8, 2.98e-8, 2.99e-8, 6.1e-5, 6.103515625e-05, 1.00048828125, 1.0014648, 2047.5, 1e-9, -3.14159} {
		h := iocpu.Half(f)
		best := uint16(0)
		for c := range uint16(0x7c00) {
			if math.Abs(float64(iocpu.Unhalf(c))-math.Abs(f)) < math.Abs(float64(iocpu.Unhalf(best))-math.Abs(f)) {
				best = c
			}
		}
		if math.Signbit(f) {
			best |= 0x8000
		}
		distance := math.Abs(float64(iocpu.Unhalf(h)) - f)
		require.Equal(t, math.Abs(float64(iocpu.Unhalf(best))-f), distance, "%v", f)
		if h != best {
			require.Zero(t, h&1, "%v: a tie goes to the even one", f)
		}
	}
}

func TestTopologies(t *testing.T) {
	good, err := os.ReadFile("testdata/topology.json")
	require.NoError(t, err)
	for _, c := range []struct{ old, new, says string }{
		{`"cubes": 2`, `"cubes": 0`, "sips[0].cubes"}, {`"cubes": 2`, `"cubes": 65`, "sips[0].cubes"}, {`"device": 0`, `"dev": 0`, "sips[0].device"},
		{`"tcm_base": 1048576`, `"tcm_base": 65535`, "tcm_base"}, {`"hbm_bytes": 65536`, `"hbm_bytes": 0`, "hbm_bytes"}, {`"control_bytes": 64`, `"control_bytes": 0`, "costs.control_bytes"},
		{`"bytes_per_ns": 128`, `"bytes_per_ns": 0`, "costs.links.pe.bytes_per_ns"}, {`"tcm": 2`, `"tcm": 2.5`, "costs.overhead_ns.tcm"}, {`"exec"`, `"exe"`, "costs.exec"},
		{`"ns": 500`, `"ns": 99999999999`, "costs.links.pcie.ns"},
	} {
		_, err := iocpu.ParseTopology(strings.NewReader(strings.Replace(string(good), c.old, c.new, 1)))
		require.ErrorContains(t, err, c.says+": ")
	}
	_, err = iocpu.ParseTopology(strings.NewReader(strings.Repeat(" ", 1<<20+1)))
	require.ErrorContains(t, err, "more than")
}

func FuzzParse(f *testing.F) {
	for _, example := range examples {
		f.Add([]byte(example))
	}
	for _, line := range session() {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := iocpu.Parse(line)
		if err != nil {
			require.ErrorIs(t, err, gpuerr.Invalid)
			return
		}
		require.True(t, json.Valid(line))
		kinds := 0
		for _, there := range []bool{r.Write != nil, r.Read != nil, r.Launch != nil} {
			if there {
				kinds++
			}
		}
		require.Equal(t, 1, kinds)
	})
}

func FuzzTopology(f *testing.F) {
	good, err := os.ReadFile("testdata/topology.json")
	require.NoError(f, err)
	f.Add(good)
	f.Fuzz(func(t *testing.T, text []byte) {
		top, err := iocpu.ParseTopology(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		require.NotEmpty(t, top.Sips)
		require.GreaterOrEqual(t, top.TCMBase, top.HBM)
	})
}
