package iocpu_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"capgpu/accel/iocpu"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
)

var update = flag.Bool("update", false, "write testdata/session.golden anew")

func TestMain(m *testing.M) { leakcheck.Main(m) }

func topology(t testing.TB) iocpu.Topology {
	t.Helper()
	f, err := os.Open("testdata/topology.json")
	require.NoError(t, err)
	defer f.Close()
	top, err := iocpu.ParseTopology(f)
	require.NoError(t, err)
	return top
}

func endpoint(t testing.TB) *iocpu.Endpoint {
	t.Helper()
	module, err := os.ReadFile("../../examples/vecadd/vecadd.spv")
	require.NoError(t, err)
	svc := sessiontest.Start(t, sessiontest.Options{})
	e, err := iocpu.New(context.Background(), svc.Dial(t), topology(t), fstest.MapFS{"vecadd.spv": {Data: module}, "folder/file": {Data: module}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// reply is an answer, taken apart.
type reply struct {
	Correlation string `json:"correlation_id"`
	ID          string `json:"request_id"`
	Completion  struct {
		OK      bool    `json:"ok"`
		Code    *string `json:"error_code"`
		Message *string `json:"error_message"`
	} `json:"completion"`
	Latency *uint64 `json:"latency_ns"`
	Hops    [][2]any
	PEs     []struct {
		Cube, PE int
		Start    int `json:"start_ns"`
		End      int `json:"end_ns"`
		OK       bool
	}
	Digest string `json:"sha256"`
}

func (r reply) code() string {
	if r.Completion.Code == nil {
		return ""
	}
	return *r.Completion.Code
}

func handle(t testing.TB, e *iocpu.Endpoint, line string) (r reply) {
	t.Helper()
	require.NoError(t, json.Unmarshal(e.Handle(context.Background(), []byte(line)), &r))
	require.Equal(t, r.Completion.OK, r.Completion.Code == nil)
	require.Equal(t, r.Completion.OK, r.Completion.Message == nil)
	require.Equal(t, r.Latency == nil, len(r.Hops) == 0)
	if r.Latency != nil {
		require.Positive(t, *r.Latency)
		require.Equal(t, [2]any{"host", 0.0}, r.Hops[0])
		require.Equal(t, [2]any{"host", float64(*r.Latency)}, r.Hops[len(r.Hops)-1])
	}
	return r
}

// request makes lines with ids that count.
type request struct{ n int }

func (q *request) line(kind, fields string) string {
	q.n++
	return fmt.Sprintf(`{"msg_type": %q, "correlation_id": "c", "request_id": "%d", "target_device": "sip:0", %s}`, kind, q.n, fields)
}

func (q *request) fill(cube, pe, pa, bytes int, pattern string) string {
	return q.line("MemoryWrite", fmt.Sprintf(`"dst_sip": 0, "dst_cube": %d, "dst_pe": %d, "dst_pa": %d, "nbytes": %d, "src_kind": "pattern", "pattern": %s`, cube, pe, pa, bytes, pattern))
}

func (q *request) read(cube, pe, pa, bytes int) string {
	return q.line("MemoryRead", fmt.Sprintf(`"src_sip": 0, "src_cube": %d, "src_pe": %d, "src_pa": %d, "nbytes": %d`, cube, pe, pa, bytes))
}

func kernelRef(name string) string {
	return fmt.Sprintf(`"kernel_ref": {"name": %q, "kind": "builtin", "deploy_pa": null, "deploy_sip": 0, "deploy_cube": 0, "deploy_pe": 0, "nbytes_code": 100}`, name)
}

// tensor has a shard at an address of each of the PEs, which are cube and pe.
func tensor(pa, bytes int, pes ...[2]int) string {
	var shards []string
	for i, p := range pes {
		shards = append(shards, fmt.Sprintf(`{"sip": 0, "cube": %d, "pe": %d, "pa": %d, "nbytes": %d, "offset_bytes": %d}`, p[0], p[1], pa, bytes, i*bytes))
	}
	return fmt.Sprintf(`{"arg_kind": "tensor", "tensor_pa_map": {"shards": [%s]}}`, strings.Join(shards, ","))
}

func scalar(dtype, value string) string {
	return fmt.Sprintf(`{"arg_kind": "scalar", "dtype": %q, "value": %s}`, dtype, value)
}

func args(list ...string) string { return `"args": [` + strings.Join(list, ",") + `]` }

var everyPE = [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}}

// session is a host that uses everything once.
func session() []string {
	var q request
	lines := []string{
		q.fill(0, 0, 0, 64, `{"pattern_kind": "fill_fp32", "value": 1.5}`),
		q.fill(0, 0, 1<<20, 64, `{"pattern_kind": "fill_fp16", "value": -0.1}`),
		q.fill(1, 1, 3, 9, `{"pattern_kind": "fill_u8", "value": 255}`),
		q.fill(1, 1, 16, 6, `{"pattern_kind": "fill_u16", "value": 258}`),
		q.fill(1, 1, 32, 8, `{"pattern_kind": "fill_u32", "value": 4294967295}`),
		q.fill(1, 1, 32, 4, `{"pattern_kind": "zero", "value": null}`),
		q.read(1, 1, 0, 64),
		q.line("memory_read", `"src_sip": 0, "src_cube": 0, "src_pe": 0, "src_pa": 0, "nbytes": 64, "dst_kind": "discard", "timestamp_tag": "t", "debug_label": null`),
		q.line("MemoryWrite", `"dst_sip": 0, "dst_cube": 0, "dst_pe": 1, "dst_pa": 4096, "nbytes": 1000, "src_kind": "host_buffer_ref", "host_buffer_ref": "vecadd.spv", "dst_mem_kind": "HBM"`),
		q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(tensor(0, 64, everyPE...), scalar("fp32", "2"), tensor(256, 64, everyPE...))),
		q.read(0, 0, 256, 64),
		q.line("kernel_launch", kernelRef("trap")+","+args(tensor(0, 4, everyPE[2]))+`, "failure_policy": "collect_all"`),
		q.read(1, 0, 0, 64),
		q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(tensor(0, 64, everyPE...), scalar("fp32", "2"), tensor(256, 64, everyPE...))),
		`no JSON`,
	}
	return lines
}

// TestGolden: a session's answers are those that were promised, by two endpoints to the byte, and by
// lines as by calls.
func TestGolden(t *testing.T) {
	var runs [2]bytes.Buffer
	require.NoError(t, endpoint(t).Serve(context.Background(), strings.NewReader(strings.Join(session(), "\n")), &runs[0]))
	e := endpoint(t)
	for _, line := range session() {
		runs[1].Write(append(e.Handle(context.Background(), []byte(line)), '\n'))
	}
	require.Equal(t, runs[0].String(), runs[1].String())
	if *update {
		require.NoError(t, os.WriteFile("testdata/session.golden", runs[0].Bytes(), 0o644))
	}
	want, err := os.ReadFile("testdata/session.golden")
	require.NoError(t, err)
	require.Equal(t, string(want), runs[0].String())
}

// TestAHopAtATime holds the model's time to numbers that were added up by hand.
func TestAHopAtATime(t *testing.T) {
	e, q := endpoint(t), request{}
	r := handle(t, e, q.fill(1, 1, 0, 64, `{"pattern_kind": "zero"}`))
	require.Equal(t, [][2]any{
		{"host", 0.0},
		{"sip0.pcie_ep", 502.0},       // 500 + 64/32
		{"sip0.io_cpu", 613.0},        // + 100 + 10 + 64/64
		{"sip0.cube1.m_cpu", 689.0},   // + 50 + 20 + 5 + 1
		{"sip0.cube1.pe1.hbm", 725.0}, // + 30 + 4 + 1 + 64/128
		{"sip0.cube1.m_cpu", 775.0},   // + 40 + 64/16, then 4 + 1 + 1
		{"sip0.io_cpu", 831.0},        // + 30 + 20 + 5 + 1
		{"sip0.pcie_ep", 892.0},       // + 50 + 10 + 1
		{"host", 1494.0},              // + 100 + 500 + 2
	}, r.Hops)
	r = handle(t, e, q.read(0, 0, 1<<20, 512))
	require.Equal(t, [][2]any{
		{"host", 0.0}, {"sip0.pcie_ep", 502.0}, {"sip0.io_cpu", 613.0}, {"sip0.cube0.m_cpu", 684.0},
		{"sip0.cube0.pe0.tcm", 719.0},
		{"sip0.cube0.m_cpu", 732.0}, // + 2 + 512/256, then 4 + 576/128
		{"sip0.io_cpu", 791.0},      // + 30 + 20 + 576/64
		{"sip0.pcie_ep", 860.0},     // + 50 + 10 + 576/64
		{"host", 1478.0},            // + 100 + 500 + 576/32
	}, r.Hops)

	// Two PEs of two cubes: the farther one answers last.
	r = handle(t, e, q.line("KernelLaunch", kernelRef("fill_u32")+","+args(tensor(0, 64, everyPE[0], everyPE[3]), scalar("i32", "1"))))
	require.Equal(t, 725.0, r.Hops[4][1])
	require.Equal(t, 733, r.PEs[1].Start) // + 8
	require.Equal(t, 733+1000+8+13, r.PEs[1].End, "64/8 and 100/8")
	require.Equal(t, 1754.0+6, r.Hops[5][1], "then 4 + 1 + 1")
}

func TestLaunches(t *testing.T) {
	e, q := endpoint(t), request{}
	for _, p := range everyPE {
		require.True(t, handle(t, e, q.fill(p[0], p[1], 0, 64, `{"pattern_kind": "fill_fp32", "value": 1}`)).Completion.OK)
	}
	add := func(policy string) string {
		return q.line("KernelLaunch", kernelRef("vecadd_f32")+","+args(tensor(0, 64, everyPE...), tensor(0, 64, everyPE...), tensor(128, 64, everyPE...))+policy)
	}
	r := handle(t, e, add(""))
	require.True(t, r.Completion.OK)
	require.Len(t, r.PEs, 4)
	require.Equal(t, "sip0.cube1.pe1.pe_cpu", r.Hops[4][0], "the last one answers last")
	want := handle(t, e, q.fill(0, 0, 1024, 64, `{"pattern_kind": "fill_fp32", "value": 2}`))
	require.True(t, want.Completion.OK)
	two := handle(t, e, q.read(0, 0, 1024, 64)).Digest
	for _, p := range everyPE {
		require.Equal(t, two, handle(t, e, q.read(p[0], p[1], 128, 64)).Digest)
	}

	// One PE traps: it is poisoned, the others are not, and its memory can be read.
	r = handle(t, e, q.line("KernelLaunch", kernelRef("trap")+","+args(tensor(0, 4, everyPE[1]))))
	require.Equal(t, "failed", r.code())
	require.Contains(t, *r.Completion.Message, "cube 0 pe 1")
	require.False(t, r.PEs[0].OK)
	r = handle(t, e, add(""))
	require.Equal(t, "E_POISONED", r.code())
	require.Empty(t, r.PEs, "all is checked before anything runs")
	require.Equal(t, two, handle(t, e, q.read(0, 1, 128, 64)).Digest)
	r = handle(t, e, q.line("KernelLaunch", kernelRef("vecadd_f32")+","+args(tensor(0, 64, everyPE[0]), tensor(0, 64, everyPE[0]), tensor(128, 64, everyPE[0]))))
	require.True(t, r.Completion.OK)
}

func TestFailurePolicies(t *testing.T) {
	for policy, ran := range map[string]int{``: 1, `, "failure_policy": null`: 1, `, "failure_policy": "fail_fast"`: 1, `, "failure_policy": "collect_all"`: 4} {
		e, q := endpoint(t), request{}
		r := handle(t, e, q.line("KernelLaunch", kernelRef("trap")+","+args(tensor(0, 4, everyPE[3], everyPE[0], everyPE[2], everyPE[1]))+policy))
		require.Equal(t, "failed", r.code())
		require.Len(t, r.PEs, ran)
		require.Equal(t, ran, strings.Count(*r.Completion.Message, "outOfBounds"))
		require.True(t, strings.HasPrefix(*r.Completion.Message, "cube 0 pe 0"), "in their order: %s", *r.Completion.Message)
	}
}

func TestDeployed(t *testing.T) {
	module, err := os.ReadFile("../../examples/vecadd/vecadd.spv")
	require.NoError(t, err)
	e, q := endpoint(t), request{}
	put := q.line("MemoryWrite", fmt.Sprintf(`"dst_sip": 0, "dst_cube": 1, "dst_pe": 0, "dst_pa": 8192, "nbytes": %d, "src_kind": "host_buffer_ref", "host_buffer_ref": "vecadd.spv"`, len(module)))
	require.True(t, handle(t, e, put).Completion.OK)
	launch := func(bytes int) reply {
		return handle(t, e, q.line("KernelLaunch", fmt.Sprintf(`"kernel_ref": {"name": "mine", "kind": "deployed", "deploy_pa": 8192, "deploy_sip": 0, "deploy_cube": 1, "deploy_pe": 0, "nbytes_code": %d},`, bytes)+
			args(tensor(0, 64, everyPE...), tensor(0, 64, everyPE...), tensor(128, 64, everyPE...))+`, "grid": {"x": 1}, "meta": {"any": ["thing"]}`))
	}
	require.True(t, launch(len(module)).Completion.OK)
	require.True(t, launch(len(module)).Completion.OK)
	require.Equal(t, "E_PROGRAM", launch(len(module)-4).code())
}

// TestRefusals: what is refused has its code and no way, and a spelling mistake never runs.
func TestRefusals(t *testing.T) {
	e, q := endpoint(t), request{}
	one := tensor(0, 64, everyPE[0])
	for _, c := range []struct{ line, code, says string }{
		{q.fill(0, 0, 65530, 16, `{"pattern_kind": "zero"}`), "E_INVALID", "dst_pa: "},
		{q.fill(0, 0, 1<<20+4090, 16, `{"pattern_kind": "zero"}`), "E_INVALID", "dst_pa: "},
		{q.fill(2, 0, 0, 16, `{"pattern_kind": "zero"}`), "E_NO_DEVICE", "dst_cube"},
		{q.fill(0, 2, 0, 16, `{"pattern_kind": "zero"}`), "E_NO_DEVICE", "dst_pe"},
		{q.line("MemoryWrite", `"dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "pattern", "pattern": {"pattern_kind": "zero"}, "dst_mem_kind": "TCM"`), "E_INVALID", "dst_pa: "},
		{q.line("MemoryWrite", `"dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "host_buffer_ref", "host_buffer_ref": "none"`), "E_INVALID", "host_buffer_ref: "},
		{q.line("MemoryWrite", `"dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 4, "src_kind": "host_buffer_ref", "host_buffer_ref": "folder"`), "E_INVALID", "host_buffer_ref: "},
		{q.line("MemoryWrite", `"dst_sip": 0, "dst_cube": 0, "dst_pe": 0, "dst_pa": 0, "nbytes": 9999, "src_kind": "host_buffer_ref", "host_buffer_ref": "vecadd.spv"`), "E_INVALID", "host_buffer_ref: "},
		{strings.Replace(q.read(0, 0, 0, 4), "sip:0", "sip:2", 1), "E_NO_DEVICE", "target_device"},
		{strings.Replace(q.read(0, 0, 0, 4), "sip:0", "sip:00", 1), "E_NO_DEVICE", "target_device"},
		{strings.Replace(q.read(0, 0, 0, 4), "sip:0", "sip:1", 1), "E_INVALID", "src_sip: "},
		{q.line("KernelLaunch", kernelRef("none")+","+args(one)), "E_NO_PROGRAM", ""},
		{q.line("KernelLaunch", kernelRef("vecadd_f32")+","+args(one)), "E_INVALID", ""},
		{q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(one, one, scalar("i32", "1"))), "E_INVALID", "args[2].value: "},
		{q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(one, one)), "E_INVALID", "args: "},
		{q.line("KernelLaunch", kernelRef("fill_u32")+","+args(one, scalar("i32", "-1"))), "E_INVALID", "args[1].value: "},
		{q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(one, tensor(0, 64, everyPE[1]), scalar("fp32", "1"))), "E_INVALID", "args[1].tensor_pa_map.shards[0].pe: "},
		{q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(tensor(0, 64, everyPE...), one, scalar("fp32", "1"))), "E_INVALID", "args: "},
		{q.line("KernelLaunch", kernelRef("saxpy_f32")+","+args(tensor(0, 64, everyPE[0], everyPE[0]), one, scalar("fp32", "1"))), "E_INVALID", "args[0].tensor_pa_map.shards[1].pe: "},
		{q.line("KernelLaunch", kernelRef("fill_u32")+","+args(one, scalar("i32", "1"))+`, "grid": {"x": 4000000000}`), "E_LAUNCH_LIMIT", ""},
	} {
		r := handle(t, e, c.line)
		require.Equal(t, c.code, r.code(), c.line)
		require.Nil(t, r.Latency, c.line)
		require.Contains(t, *r.Completion.Message, c.says)
		if c.code == "E_INVALID" {
			require.True(t, strings.HasPrefix(*r.Completion.Message, c.says), "%s: %s", c.line, *r.Completion.Message)
		}
	}

	line := q.read(0, 0, 0, 4)
	require.True(t, handle(t, e, line).Completion.OK)
	r := handle(t, e, line)
	require.Equal(t, "E_INVALID", r.code())
	require.True(t, strings.HasPrefix(*r.Completion.Message, "request_id: "))
	require.Equal(t, "c", r.Correlation)
}

func TestALineThatIsTooLong(t *testing.T) {
	var out bytes.Buffer
	q := request{}
	input := strings.Repeat("x", 3<<20) + "\n" + q.read(0, 0, 0, 4) + "\n"
	require.NoError(t, endpoint(t).Serve(context.Background(), strings.NewReader(input), &out))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 3)
	require.Contains(t, lines[0], "line: more than 1048576 bytes")
	require.Contains(t, lines[1], `"ok":true`)
}

// TestTooLargeATopology: what the tenant may not have is refused at the start, and leaves nothing.
func TestTooLargeATopology(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{Attach: func(a *gpu.Attach) { a.TenantLimits[ledger.DeviceMemory] = 200000 }})
	_, err := iocpu.New(context.Background(), svc.Dial(t), topology(t), nil)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NoError(t, svc.Device.Reclaimed(t.Context()))
	for _, tenant := range svc.Device.Status("").Tenants {
		require.Empty(t, tenant.Sessions)
	}
}
