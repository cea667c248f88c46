package control

import (
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

func TestMain(m *testing.M) { leakcheck.Main(m) }

// patience bounds every wait of these tests; none should need it.
const patience = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var anyFDs = ConnOptions{Descriptors: true}

// pair makes a Conn and the raw socket of its peer.
func pair(t testing.TB, o ConnOptions) (*Conn, int) {
	t.Helper()
	a, b, err := shm.Socketpair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConn(a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, b
}

func newConn(t testing.TB, fd int) *Conn {
	t.Helper()
	c, err := NewConn(fd, anyFDs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// memfd makes a descriptor worth sending; the test closes it.
func memfd(t testing.TB) int {
	t.Helper()
	fd, err := unix.MemfdCreate("control-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// rawSend sends bytes as they are.
func rawSend(t testing.TB, fd int, b []byte, fds ...int) {
	t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatalf("sendmsg: %v", err)
	}
}

// encode encodes a message that may break the rules for bodies.
func encode(t testing.TB, m *Message) []byte {
	t.Helper()
	b, err := appendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var aDevice = DeviceInfo{
	Index: 1, State: 1, Epoch: 3, MemoryBytes: 1 << 30, VendorID: 0x1234, DeviceID: 0x11e8,
	Facet: 2, Recovery: 3, Generation: 5, Suspended: true, Name: "mock0", Backend: "mock", PCIAddress: "0000:00:01.0",
}

var aTrap = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{
	Kind: outcome.OutOfBounds, Binding: 2, Workgroup: 3, Lane: 4, Offset: 0x1122334455667788}}

var aProgram = ProgramInfo{
	Name: "saxpy_f32", Digest: [32]byte{0: 0xd1, 31: 0x9e}, InlineBytes: 8, SharedBytes: 256, DynamicElementBytes: 4, StackBytes: 16,
	Block: [3]uint32{64, 2, 1}, BlockFree: true, OrderDependent: true, ToleranceAbs: 0.5, ToleranceRel: 1e-6,
	Bindings: []BindingInfo{{Name: "x", Access: 1, Type: "f32"}, {Name: "y", Access: 3}},
	Inline:   []FieldInfo{{Name: "a", Type: "f32"}, {Name: "n", Type: "u32", Off: 4}},
	Features: []string{"f16Storage"}, Warnings: []string{"W-GPU-4040 OpControlBarrier at byte 812: in divergent flow"},
}

func (Empty) AppendTo(b []byte) []byte { return b }

func parseEmpty(b []byte) (Empty, error) { return parse[Empty](b) }

// sample is one body with all its fields set.
type sample struct {
	typ   MsgType
	reply bool
	body  interface{ AppendTo([]byte) []byte }
	parse func([]byte) (any, error)
}

func as[T any](parse func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return parse(b) }
}

const h1, h2 = 0x0000000200000001, 0x0000000700000009

// samples cover every body of docs/wire.md, request then reply.
var samples = []sample{
	{TypeHello, false, HelloRequest{Version: 1}, as(ParseHelloRequest)},
	{TypeHello, true, HelloReply{Version: 1, Tenant: "alice"}, as(ParseHelloReply)},
	{TypeListDevices, false, Empty{}, as(parseEmpty)},
	{TypeListDevices, true, ListDevicesReply{Devices: []DeviceInfo{aDevice, {Name: "é"}}}, as(ParseListDevicesReply)},
	{TypeOpenDevice, false, OpenDeviceRequest{Index: 7}, as(ParseOpenDeviceRequest)},
	{TypeOpenDevice, true, OpenDeviceReply{Epoch: 9}, as(ParseOpenDeviceReply)},
	{TypeNextState, false, NextStateRequest{Index: 1, Epoch: 2, TimeoutNanos: 3, Steps: true}, as(ParseNextStateRequest)},
	{TypeNextState, true, NextStateReply{Epoch: 2, State: 2, Changed: true, Recovery: 4, LastRecovery: 2, Incidents: 5, Suspended: true, Cause: "driver died"}, as(ParseNextStateReply)},
	{TypeStatus, false, StatusRequest{Index: 1}, as(ParseStatusRequest)},
	{TypeOpenReady, false, OpenReadyRequest{Index: 7, TimeoutNanos: 3}, as(ParseOpenReadyRequest)},
	{TypeOpenReady, true, OpenDeviceReply{Epoch: 9}, as(ParseOpenDeviceReply)},
	{TypeDescribe, false, Empty{}, as(parseEmpty)},
	{TypeDescribe, true, Description{Device: aDevice, HangBoundNanos: 1, RevokeBoundNanos: 9, MaxDeadlineNanos: 2, MaxBufferBytes: 3,
		MaxThreadsPerBlock: 4, MaxBlockDim: 5, MaxGridDim: 6, MaxSharedBytes: 7, MaxBindings: 8, MaxInlineBytes: 9,
		MaxQueueEntries: 10, SubgroupSize: 11, Facet: 1, Poisoned: aTrap, Checked: true, GlobalMemAlignment: 12, MaxBindingBytes: 14, LocalBytes: 15, ComputeUnits: 13, Deterministic: true, Programs: []string{"fill_u32", "vecadd_f32"}}, as(ParseDescription)},
	{TypeBudget, false, Empty{}, as(parseEmpty)},
	{TypeBudget, true, BudgetReply{Entries: []BudgetEntry{{Class: 1, Used: 2, Limit: 3, Peak: 4}, {Class: 14, Limit: math.MaxUint64}}}, as(ParseBudgetReply)},
	{TypeCreateBuffer, false, CreateBufferRequest{Bytes: 4096, Usage: 5}, as(ParseCreateBufferRequest)},
	{TypeCreateBuffer, true, CreateBufferReply{Handle: h1, MemOff: 4096, MemLen: 8192}, as(ParseCreateBufferReply)},
	{TypeDestroyBuffer, false, HandleBody{Handle: h1}, as(ParseHandleBody)},
	{TypeDestroyBuffer, true, Empty{}, as(parseEmpty)},
	{TypeCreateFence, false, CreateFenceRequest{Initial: 5}, as(ParseCreateFenceRequest)},
	{TypeCreateFence, true, HandleBody{Handle: h2}, as(ParseHandleBody)},
	{TypeDestroyFence, false, HandleBody{Handle: h2}, as(ParseHandleBody)},
	{TypeDestroyFence, true, Empty{}, as(parseEmpty)},
	{TypeFenceState, false, HandleBody{Handle: h2}, as(ParseHandleBody)},
	{TypeFenceState, true, FenceState{Reached: 1, Promised: 2, Outcome: aTrap}, as(ParseFenceState)},
	{TypeFenceWait, false, FenceWaitRequest{Handle: h2, Value: 3, TimeoutNanos: 4}, as(ParseFenceWaitRequest)},
	{TypeFenceWait, true, FenceState{Reached: 3, Promised: 3, Outcome: outcome.Success}, as(ParseFenceState)},
	{TypeFenceSignal, false, FenceSignalRequest{Handle: h2, Value: 6}, as(ParseFenceSignalRequest)},
	{TypeFenceSignal, true, Empty{}, as(parseEmpty)},
	{TypeOpenProgram, false, OpenProgramRequest{Name: "saxpy_f32"}, as(ParseOpenProgramRequest)},
	{TypeOpenProgram, true, ProgramReply{Handle: h1, Info: aProgram}, as(ParseProgramReply)},
	{TypeLoadProgram, false, LoadProgramRequest{Buffer: h1, Off: 64, Bytes: 1234}, as(ParseLoadProgramRequest)},
	{TypeLoadProgram, true, ProgramReply{Handle: h1, Info: aProgram}, as(ParseProgramReply)},
	{TypeCloseProgram, false, HandleBody{Handle: h1}, as(ParseHandleBody)},
	{TypeCloseProgram, true, Empty{}, as(parseEmpty)},
	{TypeCreateQueue, false, CreateQueueRequest{Entries: 256, ArgBytes: 65536}, as(ParseCreateQueueRequest)},
	{TypeCreateQueue, true, CreateQueueReply{Handle: h1, Entries: 256, ArgBytes: 65536}, as(ParseCreateQueueReply)},
	{TypeCancelQueue, false, HandleBody{Handle: h1}, as(ParseHandleBody)},
	{TypeCancelQueue, true, Empty{}, as(parseEmpty)},
	{TypeCloseQueue, false, HandleBody{Handle: h1}, as(ParseHandleBody)},
	{TypeCloseQueue, true, Empty{}, as(parseEmpty)},
	{TypeRestrict, false, RestrictRequest{Facet: 1, MaxDeadlineNanos: 2, Check: true, Limits: []Limit{{Class: 1, Amount: 4096}}, Programs: []string{"a", "bc"}}, as(ParseRestrictRequest)},
	{TypeRestrict, true, Empty{}, as(parseEmpty)},
	{TypeClose, false, Empty{}, as(parseEmpty)},
	{TypeClose, true, Empty{}, as(parseEmpty)},
	{TypeAwaitEnd, false, Empty{}, as(parseEmpty)},
	{TypeAwaitEnd, true, Empty{}, as(parseEmpty)},
	{TypeRecordList, false, RecordListRequest{Buffer: h1, Off: 4096, Entries: 70, ArgBytes: 9216}, as(ParseRecordListRequest)},
	{TypeRecordList, true, HandleBody{Handle: h2}, as(ParseHandleBody)},
	{TypeCloseList, false, HandleBody{Handle: h2}, as(ParseHandleBody)},
	{TypeCloseList, true, Empty{}, as(parseEmpty)},
	{TypeReady, false, ReadyRequest{Epoch: 1, MemoryBytes: 2, Backend: "mock"}, as(ParseReadyRequest)},
	{TypeReady, true, Empty{}, as(parseEmpty)},
	{TypeAttach, false, AttachRequest{Session: 1, Tenant: "alice", Facet: 2, Weight: 3, MaxDeadlineNanos: 4,
		TenantLimits: []Limit{{Class: 1, Amount: 5}}, SessionLimits: []Limit{{Class: 7, Amount: 6}, {Class: 0, Amount: 1}}, Programs: []string{"p"}}, as(ParseAttachRequest)},
	{TypeAttach, true, Empty{}, as(parseEmpty)},
	{TypeDriverStatus, false, DriverStatusRequest{Tenant: "alice"}, as(ParseDriverStatusRequest)},
	{TypeShutdown, false, Empty{}, as(parseEmpty)},
	{TypeShutdown, true, Empty{}, as(parseEmpty)},
	{TypePing, false, Empty{}, as(parseEmpty)},
	{TypePing, true, Empty{}, as(parseEmpty)},
	{TypeSetTenant, false, SetTenantRequest{Tenant: "alice", Weight: 2, MaxDeadlineNanos: 3, Limits: []Limit{{Class: 14, Amount: 9}}}, as(ParseSetTenantRequest)},
	{TypeSetTenant, true, Empty{}, as(parseEmpty)},
	{TypeDeviceFault, false, DeviceFaultRequest{IOVA: 0x900000, Access: FaultWrite, Count: 3, Reason: "PTE Write access is not set"}, as(ParseDeviceFaultRequest)},
	{TypeDeviceFault, true, Empty{}, as(parseEmpty)},
	{TypeSettleFaults, false, Empty{}, as(parseEmpty)},
	{TypeSettleFaults, true, SettleFaultsReply{CompleteNanos: 5}, as(ParseSettleFaultsReply)},
	{TypeDeviceGone, false, DeviceGoneRequest{Reason: "it was unplugged"}, as(ParseDeviceGoneRequest)},
	{TypeDeviceGone, true, Empty{}, as(parseEmpty)},
	{TypeRecovery, false, RecoveryRequest{Step: 3, Last: 2, Incidents: 7}, as(ParseRecoveryRequest)},
	{TypeRecovery, true, Empty{}, as(parseEmpty)},
	{TypeHandover, false, HandoverRequest{TimeoutNanos: 5_000_000_000}, as(ParseHandoverRequest)},
	{TypeHandover, true, HandoverReply{Sessions: 3, Bytes: 70_000}, as(ParseHandoverReply)},
	{TypeTakeOver, false, HandoverRequest{TimeoutNanos: 5_000_000_000}, as(ParseHandoverRequest)},
	{TypeTakeOver, true, HandoverReply{Sessions: 3, Bytes: 70_000}, as(ParseHandoverReply)},
	{TypeThaw, false, Empty{}, as(parseEmpty)},
	{TypeThaw, true, Empty{}, as(parseEmpty)},
	{TypeGo, false, Empty{}, as(parseEmpty)},
	{TypeGo, true, Empty{}, as(parseEmpty)},
	{TypeFreeze, false, HandoverRequest{TimeoutNanos: 1}, as(ParseHandoverRequest)},
	{TypeFreeze, true, Empty{}, as(parseEmpty)},
	{TypePreempt, false, Empty{}, as(parseEmpty)},
	{TypePreempt, true, EndedReply{Sessions: 3}, as(ParseEndedReply)},
	{TypeEndSessions, false, EndSessionsRequest{Tenant: "alice", Reason: "reason=policy", Sessions: []uint64{7, 1 << 40}}, as(ParseEndSessionsRequest)},
	{TypeEndSessions, true, EndedReply{Sessions: 2}, as(ParseEndedReply)},
	{TypeUpgrade, false, UpgradeRequest{Device: "mock0", Force: true}, as(ParseUpgradeRequest)},
	{TypeUpgrade, true, UpgradeReply{Epoch: 2, Generation: 3, Sessions: 4, Preempted: 6, PauseNanos: 5}, as(ParseUpgradeReply)},
	{TypeSuspend, false, DeviceRequest{Device: "mock0"}, as(ParseDeviceRequest)},
	{TypeSuspend, true, Empty{}, as(parseEmpty)},
	{TypeResume, false, DeviceRequest{Device: "mock0"}, as(ParseDeviceRequest)},
	{TypeResume, true, Empty{}, as(parseEmpty)},
	{TypePlan, false, PlanRequest{More: true, Text: []byte("{\"ten")}, as(ParsePlanRequest)},
	{TypeAwaitClient, false, Empty{}, as(parseEmpty)},
	{TypeAwaitClient, true, Empty{}, as(parseEmpty)},
}

var anError = &gpuerr.Error{Code: gpuerr.Quota, Resource: "deviceMemory", Asked: 1 << 20, Available: 4096, Msg: "close a buffer first"}

// golden compares lines with a file of testdata, or writes it with -update.
func golden(t *testing.T, file string, lines []string) {
	t.Helper()
	path, text := "testdata/"+file, strings.Join(lines, "\n")+"\n"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs; the wire changed: amend docs/wire.md, then run with -update.\nhave:\n%s\nwant:\n%s", path, text, want)
	}
}

func goldenLine(name string, b []byte) string {
	return fmt.Sprintf("%-24s %s", name, hex.EncodeToString(b))
}
