package schema_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/schemas"
	capschema "capnproto.org/go/capnp/v3/std/capnp/schema"
	"github.com/stretchr/testify/require"

	"capgpu/schema"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGeneratedIsFresh compares the committed code with what the schema gives.
func TestGeneratedIsFresh(t *testing.T) {
	if _, err := exec.LookPath("capnp"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("capnp is missing; CI must install capnproto")
		}
		t.Skip("SKIPPED: capnp is missing (apt-get install capnproto): generated code not compared")
	}
	dir := t.TempDir()
	out, err := exec.Command("./generate.sh", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile(filepath.Join(dir, "zcapos.capnp.go"))
	require.NoError(t, err)
	got, err := os.ReadFile("zcapos.capnp.go")
	require.NoError(t, err)
	if !bytes.Equal(got, want) {
		t.Fatal("zcapos.capnp.go is stale; run `make generate`")
	}
}

// TestWireNumbers pins ids, ordinals, offsets and types of everything declared.
func TestWireNumbers(t *testing.T) {
	golden(t, "testdata/numbers.golden", describeSchema(t))
}

// TestSeedMethods holds the methods of the specification to their names, order,
// parameters and results. Additions come after them.
func TestSeedMethods(t *testing.T) {
	seed := map[string][]string{
		"GpuDeviceManager": {
			"listDevices() -> (devices: List(GpuDeviceInfo)",
			"openDevice(capabilityIndex: UInt32) -> (session: GpuSession",
		},
		"GpuMemorySession": {
			"createBuffer(bytes: UInt64, usage: Text) -> (buffer: GpuBuffer",
			"destroyBuffer(buffer: UInt32) -> (",
			"submitMemcpy(dst: UInt32, src: UInt32, bytes: UInt64) -> (",
			"submitFenceWait(fence: UInt32) -> (",
		},
		"GpuSession": {
			"launchKernel(program: Text, grid: UInt32, block: UInt32, bufferList: List(UInt32), fence: GpuFence) -> (",
		},
		"GpuBuffer": {
			"mapReadWrite() -> (addr: UInt64, len: UInt64",
			"unmap() -> (",
			"size() -> (bytes: UInt64",
			"close() -> (",
		},
		"GpuFence": {
			"poll() -> (status: Text",
			"wait(timeoutNanos: UInt64) -> (ok: Bool",
			"close() -> (",
		},
	}
	nodes := allNodes(t)
	for iface, methods := range seed {
		declared := methodLines(t, nodes, iface)
		require.GreaterOrEqual(t, len(declared), len(methods), iface)
		for i, want := range methods {
			// A parameter of our own may follow those of the specification: it has its
			// default where a client does not know it.
			have := declared[i]
			if own := strings.TrimSuffix(want, ") -> ("); own != want && !strings.HasPrefix(have, want) {
				args, results, _ := strings.Cut(have, ") -> (")
				require.True(t, strings.HasPrefix(args, own+", ") && results == ")", "%s @%d is %q, the specification has %q", iface, i, have, want)
				continue
			}
			require.True(t, strings.HasPrefix(have, want), "%s @%d is %q, the specification has %q", iface, i, have, want)
		}
	}
	// A full session answers every method of the specification's GpuSession.
	all := schema.GpuSession_Methods(nil, nil)
	var names []string
	for _, m := range all {
		names = append(names, m.MethodName)
	}
	for _, m := range []string{"createBuffer", "destroyBuffer", "launchKernel", "submitMemcpy", "submitFenceWait"} {
		require.Contains(t, names, m)
	}
}

// TestSampleMessages pins whole messages: what a client of today sends must
// mean the same to a service of tomorrow.
func TestSampleMessages(t *testing.T) {
	var out strings.Builder
	add := func(name string, build func(*capnp.Segment) error) {
		msg, seg := capnp.NewSingleSegmentMessage(nil)
		require.NoError(t, build(seg), name)
		data, err := capnp.Canonicalize(capnp.Struct(must(msg.Root()).Struct()))
		require.NoError(t, err, name)
		fmt.Fprintf(&out, "%s %s\n", name, hex.EncodeToString(data))
	}
	add("createBuffer", func(s *capnp.Segment) error {
		p, err := schema.NewRootGpuMemorySession_createBuffer_Params(s)
		if err != nil {
			return err
		}
		p.SetBytes(1 << 20)
		return p.SetUsage("storage")
	})
	add("launchKernel", func(s *capnp.Segment) error {
		p, err := schema.NewRootGpuSession_launchKernel_Params(s)
		if err != nil {
			return err
		}
		p.SetGrid(4096)
		p.SetBlock(256)
		list, err := p.NewBufferList(3)
		if err != nil {
			return err
		}
		for i := range list.Len() {
			list.Set(i, uint32(i+1))
		}
		return p.SetProgram("vecadd_f32")
	})
	add("outcome", func(s *capnp.Segment) error {
		o, err := schema.NewRootOutcome(s)
		if err != nil {
			return err
		}
		o.SetKind(schema.OutcomeKind_failed)
		o.SetCause(schema.OutcomeCause_trap)
		trap, err := o.NewTrap()
		if err != nil {
			return err
		}
		trap.SetKind(schema.TrapKind_outOfBounds)
		trap.SetBinding(2)
		trap.SetOffset(4096)
		trap.SetWorkgroup(7)
		trap.SetLane(31)
		return o.SetMessage_("m")
	})
	add("copyCommand", func(s *capnp.Segment) error {
		c, err := schema.NewRootCommand(s)
		if err != nil {
			return err
		}
		c.SetDeadlineNanos(5)
		c.SetCopy()
		c.Copy().SetDst(2)
		c.Copy().SetSrc(1)
		c.Copy().SetLength(64)
		return nil
	})
	golden(t, "testdata/messages.golden", out.String())
}

func must(p capnp.Ptr, err error) capnp.Ptr {
	if err != nil {
		panic(err)
	}
	return p
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "the wire changed: if that is meant and compatible, run `go test ./schema -update`")
}

func allNodes(t *testing.T) map[uint64]capschema.Node {
	t.Helper()
	reg := new(schemas.Registry)
	schema.RegisterSchema(reg)
	data, err := reg.Find(schema.GpuSession_TypeID)
	require.NoError(t, err)
	msg, err := capnp.Unmarshal(data)
	require.NoError(t, err)
	msg.ResetReadLimit(1 << 40)
	req, err := capschema.ReadRootCodeGeneratorRequest(msg)
	require.NoError(t, err)
	list, err := req.Nodes()
	require.NoError(t, err)
	nodes := make(map[uint64]capschema.Node, list.Len())
	for i := range list.Len() {
		nodes[list.At(i).Id()] = list.At(i)
	}
	return nodes
}

func shortName(n capschema.Node) string {
	full, _ := n.DisplayName()
	return full[strings.LastIndexByte(full, ':')+1:]
}

func describeSchema(t *testing.T) string {
	nodes := allNodes(t)
	var ids []uint64
	for id := range nodes {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return shortName(nodes[ids[i]]) < shortName(nodes[ids[j]]) })
	var out strings.Builder
	for _, id := range ids {
		n := nodes[id]
		switch n.Which() {
		case capschema.Node_Which_structNode:
			if strings.Contains(shortName(n), "$") {
				continue // parameters and results stand in their method's line
			}
			s := n.StructNode()
			fmt.Fprintf(&out, "struct %s @0x%x data=%d pointers=%d\n", shortName(n), id, s.DataWordCount(), s.PointerCount())
			for _, f := range fieldLines(t, nodes, n) {
				fmt.Fprintf(&out, "  %s\n", f)
			}
		case capschema.Node_Which_enum:
			fmt.Fprintf(&out, "enum %s @0x%x\n", shortName(n), id)
			values, err := n.Enum().Enumerants()
			require.NoError(t, err)
			for i := range values.Len() {
				name, _ := values.At(i).Name()
				fmt.Fprintf(&out, "  %d %s\n", i, name)
			}
		case capschema.Node_Which_interface:
			fmt.Fprintf(&out, "interface %s @0x%x\n", shortName(n), id)
			for i, m := range methodLines(t, nodes, shortName(n)) {
				fmt.Fprintf(&out, "  @%d %s\n", i, m)
			}
		}
	}
	return out.String()
}

func methodLines(t *testing.T, nodes map[uint64]capschema.Node, iface string) []string {
	t.Helper()
	for _, n := range nodes {
		if n.Which() != capschema.Node_Which_interface || shortName(n) != iface {
			continue
		}
		methods, err := n.Interface().Methods()
		require.NoError(t, err)
		var lines []string
		for i := range methods.Len() {
			m := methods.At(i)
			name, _ := m.Name()
			lines = append(lines, fmt.Sprintf("%s(%s) -> (%s)", name,
				paramList(t, nodes, m.ParamStructType()), paramList(t, nodes, m.ResultStructType())))
		}
		return lines
	}
	t.Fatalf("no interface %s", iface)
	return nil
}

func paramList(t *testing.T, nodes map[uint64]capschema.Node, id uint64) string {
	fields, err := nodes[id].StructNode().Fields()
	require.NoError(t, err)
	var parts []string
	for i := range fields.Len() {
		name, _ := fields.At(i).Name()
		typ, _ := fields.At(i).Slot().Type()
		parts = append(parts, name+": "+typeName(nodes, typ))
	}
	return strings.Join(parts, ", ")
}

func fieldLines(t *testing.T, nodes map[uint64]capschema.Node, n capschema.Node) []string {
	fields, err := n.StructNode().Fields()
	require.NoError(t, err)
	var lines []string
	for i := range fields.Len() {
		f := fields.At(i)
		name, _ := f.Name()
		variant := ""
		if f.DiscriminantValue() != 0xffff {
			variant = fmt.Sprintf(" variant=%d", f.DiscriminantValue())
		}
		if f.Which() == capschema.Field_Which_group {
			lines = append(lines, fmt.Sprintf("%s: group%s", name, variant))
			for _, inner := range fieldLines(t, nodes, nodes[f.Group().TypeId()]) {
				lines = append(lines, "  "+inner)
			}
			continue
		}
		typ, _ := f.Slot().Type()
		lines = append(lines, fmt.Sprintf("%s: %s offset=%d%s", name, typeName(nodes, typ), f.Slot().Offset(), variant))
	}
	return lines
}

func typeName(nodes map[uint64]capschema.Node, typ capschema.Type) string {
	switch typ.Which() {
	case capschema.Type_Which_list:
		elem, _ := typ.List().ElementType()
		return "List(" + typeName(nodes, elem) + ")"
	case capschema.Type_Which_structType:
		return shortName(nodes[typ.StructType().TypeId()])
	case capschema.Type_Which_enum:
		return shortName(nodes[typ.Enum().TypeId()])
	case capschema.Type_Which_interface:
		return shortName(nodes[typ.Interface().TypeId()])
	default:
		name := typ.Which().String()
		name = strings.Replace(name, "uint", "UInt", 1)
		return strings.ToUpper(name[:1]) + name[1:]
	}
}
