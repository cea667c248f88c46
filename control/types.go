package control

import (
	"fmt"

	"capgpu/outcome"
)

// MsgType is the type of a message, for the request and its reply.
type MsgType uint16

// Messages of the tenant socket (broker).
const (
	TypeHello       MsgType = 1
	TypeListDevices MsgType = 2
	TypeOpenDevice  MsgType = 3
	TypeNextState   MsgType = 4
	TypeStatus      MsgType = 5
	TypeOpenReady   MsgType = 6
)

// Messages of the control socket (session).
const (
	TypeDescribe      MsgType = 32
	TypeBudget        MsgType = 33
	TypeCreateBuffer  MsgType = 34
	TypeDestroyBuffer MsgType = 35
	TypeCreateFence   MsgType = 36
	TypeDestroyFence  MsgType = 37
	TypeFenceState    MsgType = 38
	TypeFenceWait     MsgType = 39
	TypeFenceSignal   MsgType = 40
	TypeOpenProgram   MsgType = 41
	TypeLoadProgram   MsgType = 42
	TypeCloseProgram  MsgType = 43
	TypeCreateQueue   MsgType = 44
	TypeCancelQueue   MsgType = 45
	TypeCloseQueue    MsgType = 46
	TypeRestrict      MsgType = 47
	TypeClose         MsgType = 48
	TypeAwaitEnd      MsgType = 49
	TypeRecordList    MsgType = 50
	TypeCloseList     MsgType = 51
)

// Messages of the supervision link.
const (
	TypeReady        MsgType = 64
	TypeAttach       MsgType = 65
	TypeDriverStatus MsgType = 66
	TypeShutdown     MsgType = 67
	TypePing         MsgType = 68
	TypeSetTenant    MsgType = 69
	TypeDeviceFault  MsgType = 70
	TypeSettleFaults MsgType = 71
	TypeDeviceGone   MsgType = 72
	TypeHandover     MsgType = 73
	TypeTakeOver     MsgType = 74
	TypeThaw         MsgType = 75
	TypeGo           MsgType = 76
	TypeRecovery     MsgType = 78
	TypeFreeze       MsgType = 79
	TypePreempt      MsgType = 80
	TypeEndSessions  MsgType = 81
)

// TypePart carries a part of a driver's state, on a socket of its own between two
// drivers (docs/wire.md). There are no requests and replies on that socket.
const TypePart MsgType = 77

// Messages of device-manager's own socket, which only its user can open.
const (
	TypeUpgrade MsgType = 96
	TypeSuspend MsgType = 97
	TypeResume  MsgType = 98
	TypePlan    MsgType = 99
)

// TypeAwaitClient is the one message of the link on which a gate waits for its client.
const TypeAwaitClient MsgType = 112

// Bounds of the wire.
const (
	HeaderBytes         = 24
	MaxMessageBytes     = 4096  // header and body
	MaxLongBytes        = 65536 // the same, for a reply to OpenProgram, LoadProgram, Status, DriverStatus or Plan
	MaxFDs              = 4     // descriptors of one message
	MaxInFlight         = 64    // requests of one socket that are served at once
	MaxStringBytes      = 256   // of a str
	MaxErrorBytes       = 512   // of the text of an error reply
	ResourceBytes       = 24    // of the resource of an error reply
	HelloVersion        = 2     // of docs/wire.md
	NumClasses          = 16    // resource classes of package ledger
	replyBit            = 1 << 15
	magic               = 0x4743 // "CG"
	maxFacet, maxState  = 2, 3
	maxRecovery         = uint32(outcome.NumRecoverySteps) - 1
	usageBits           = 15 // storage, upload, readback, device
	errorBodyFixedBytes = 16 + ResourceBytes + 2
)

// layout describes one message type.
type layout struct {
	name                 string
	requestFDs, replyFDs int
	fdsOptional          bool // a reply may come without its descriptors
	request, reply       func(*reader)
	longReply            bool // the reply has up to MaxLongBytes
}

// layouts is the one table of valid messages: both ends refuse anything else.
var layouts = map[MsgType]*layout{
	TypeHello:       {name: "Hello", request: body[HelloRequest], reply: body[HelloReply]},
	TypeListDevices: {name: "ListDevices", request: body[Empty], reply: body[ListDevicesReply]},
	TypeOpenDevice:  {name: "OpenDevice", request: body[OpenDeviceRequest], reply: body[OpenDeviceReply], replyFDs: 1},
	TypeNextState:   {name: "NextState", request: body[NextStateRequest], reply: body[NextStateReply]},
	TypeStatus:      {name: "Status", request: body[StatusRequest], reply: anything, longReply: true},
	TypeOpenReady:   {name: "OpenReady", request: body[OpenReadyRequest], reply: body[OpenDeviceReply], replyFDs: 1},

	TypeDescribe:      {name: "Describe", request: body[Empty], reply: body[Description]},
	TypeBudget:        {name: "Budget", request: body[Empty], reply: body[BudgetReply]},
	TypeCreateBuffer:  {name: "CreateBuffer", request: body[CreateBufferRequest], reply: body[CreateBufferReply], replyFDs: 1, fdsOptional: true},
	TypeDestroyBuffer: {name: "DestroyBuffer", request: body[HandleBody], reply: body[Empty]},
	TypeCreateFence:   {name: "CreateFence", request: body[CreateFenceRequest], reply: body[HandleBody]},
	TypeDestroyFence:  {name: "DestroyFence", request: body[HandleBody], reply: body[Empty]},
	TypeFenceState:    {name: "FenceState", request: body[HandleBody], reply: body[FenceState]},
	TypeFenceWait:     {name: "FenceWait", request: body[FenceWaitRequest], reply: body[FenceState]},
	TypeFenceSignal:   {name: "FenceSignal", request: body[FenceSignalRequest], reply: body[Empty]},
	TypeOpenProgram:   {name: "OpenProgram", request: body[OpenProgramRequest], reply: body[ProgramReply], longReply: true},
	TypeLoadProgram:   {name: "LoadProgram", request: body[LoadProgramRequest], reply: body[ProgramReply], longReply: true},
	TypeCloseProgram:  {name: "CloseProgram", request: body[HandleBody], reply: body[Empty]},
	TypeCreateQueue:   {name: "CreateQueue", request: body[CreateQueueRequest], reply: body[CreateQueueReply], replyFDs: 3},
	TypeCancelQueue:   {name: "CancelQueue", request: body[HandleBody], reply: body[Empty]},
	TypeCloseQueue:    {name: "CloseQueue", request: body[HandleBody], reply: body[Empty]},
	TypeRestrict:      {name: "Restrict", request: body[RestrictRequest], reply: body[Empty], replyFDs: 1},
	TypeClose:         {name: "Close", request: body[Empty], reply: body[Empty]},
	TypeAwaitEnd:      {name: "AwaitEnd", request: body[Empty], reply: body[Empty]},
	TypeRecordList:    {name: "RecordList", request: body[RecordListRequest], reply: body[HandleBody]},
	TypeCloseList:     {name: "CloseList", request: body[HandleBody], reply: body[Empty]},

	TypeReady:        {name: "Ready", request: body[ReadyRequest], reply: body[Empty]},
	TypeAttach:       {name: "Attach", request: body[AttachRequest], reply: body[Empty], requestFDs: 1},
	TypeDriverStatus: {name: "DriverStatus", request: body[DriverStatusRequest], reply: anything, longReply: true},
	TypeShutdown:     {name: "Shutdown", request: body[Empty], reply: body[Empty]},
	TypePing:         {name: "Ping", request: body[Empty], reply: body[Empty]},
	TypeSetTenant:    {name: "SetTenant", request: body[SetTenantRequest], reply: body[Empty]},
	TypeDeviceFault:  {name: "DeviceFault", request: body[DeviceFaultRequest], reply: body[Empty]},
	TypeSettleFaults: {name: "SettleFaults", request: body[Empty], reply: body[SettleFaultsReply]},
	TypeDeviceGone:   {name: "DeviceGone", request: body[DeviceGoneRequest], reply: body[Empty]},
	TypeRecovery:     {name: "Recovery", request: body[RecoveryRequest], reply: body[Empty]},
	TypeHandover:     {name: "Handover", request: body[HandoverRequest], reply: body[HandoverReply], requestFDs: 1},
	TypeTakeOver:     {name: "TakeOver", request: body[HandoverRequest], reply: body[HandoverReply], requestFDs: 1},
	TypeThaw:         {name: "Thaw", request: body[Empty], reply: body[Empty]},
	TypeGo:           {name: "Go", request: body[Empty], reply: body[Empty]},
	TypeFreeze:       {name: "Freeze", request: body[HandoverRequest], reply: body[Empty]},
	TypePreempt:      {name: "Preempt", request: body[Empty], reply: body[EndedReply]},
	TypeEndSessions:  {name: "EndSessions", request: body[EndSessionsRequest], reply: body[EndedReply]},

	TypeUpgrade: {name: "Upgrade", request: body[UpgradeRequest], reply: body[UpgradeReply]},
	TypeSuspend: {name: "Suspend", request: body[DeviceRequest], reply: body[Empty]},
	TypeResume:  {name: "Resume", request: body[DeviceRequest], reply: body[Empty]},
	TypePlan:    {name: "Plan", request: body[PlanRequest], reply: anything, longReply: true},

	TypeAwaitClient: {name: "AwaitClient", request: body[Empty], reply: body[Empty], replyFDs: 2},
}

// Known reports whether t is a message of docs/wire.md.
func (t MsgType) Known() bool { return layouts[t] != nil }

// ReplyFDs is the number of descriptors that come with a successful reply, at most.
func (t MsgType) ReplyFDs() int {
	if l := layouts[t]; l != nil {
		return l.replyFDs
	}
	return 0
}

// String is the name in docs/wire.md.
func (t MsgType) String() string {
	if l := layouts[t]; l != nil {
		return l.name
	}
	return fmt.Sprintf("message(%d)", uint16(t))
}
