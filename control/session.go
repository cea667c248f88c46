package control

import "capgpu/outcome"

// HandleBody names one object: it is the request of every message about a single
// object, and the reply of CreateFence.
type HandleBody struct{ Handle uint64 }

func (m HandleBody) AppendTo(b []byte) []byte { return appendU64(b, m.Handle) }
func (m *HandleBody) decode(r *reader)        { m.Handle = r.handle("handle") }

// ParseHandleBody is strict.
func ParseHandleBody(b []byte) (HandleBody, error) { return parse[HandleBody](b) }

// BudgetEntry is one resource of the session's account.
type BudgetEntry struct {
	Class uint32 // ledger.Class
	Used  uint64
	Limit uint64 // math.MaxUint64: none
	Peak  uint64
}

// BudgetReply is the session's account.
type BudgetReply struct{ Entries []BudgetEntry }

func (m BudgetReply) AppendTo(b []byte) []byte {
	b = appendU32(b, uint32(len(m.Entries)))
	for _, e := range m.Entries {
		b = appendU64(appendU64(appendU64(appendU32(b, e.Class), e.Used), e.Limit), e.Peak)
	}
	return b
}

func (m *BudgetReply) decode(r *reader) {
	m.Entries = list(r, 28, "entries", func(r *reader) BudgetEntry {
		return BudgetEntry{
			Class: r.enum(NumClasses-1, "entry.class"),
			Used:  r.u64("entry.used"),
			Limit: r.u64("entry.limit"),
			Peak:  r.u64("entry.peak"),
		}
	})
}

// ParseBudgetReply is strict.
func ParseBudgetReply(b []byte) (BudgetReply, error) { return parse[BudgetReply](b) }

// CreateBufferRequest asks for zeroed device memory.
type CreateBufferRequest struct {
	Bytes uint64
	Usage uint32 // bit 0 storage, bit 1 upload, bit 2 readback; 0: storage
}

func (m CreateBufferRequest) AppendTo(b []byte) []byte {
	return appendU32(appendU64(b, m.Bytes), m.Usage)
}

func (m *CreateBufferRequest) decode(r *reader) {
	m.Bytes = r.u64("bytes")
	m.Usage = r.enum(usageBits, "usage")
}

// ParseCreateBufferRequest is strict.
func ParseCreateBufferRequest(b []byte) (CreateBufferRequest, error) {
	return parse[CreateBufferRequest](b)
}

// CreateBufferReply comes with the memfd of the buffer.
type CreateBufferReply struct {
	Handle uint64
	MemOff uint64 // offset of the buffer in the memfd
	MemLen uint64
}

func (m CreateBufferReply) AppendTo(b []byte) []byte {
	return appendU64(appendU64(appendU64(b, m.Handle), m.MemOff), m.MemLen)
}

func (m *CreateBufferReply) decode(r *reader) {
	m.Handle = r.handle("handle")
	m.MemOff = r.u64("memOff")
	m.MemLen = r.u64("memLen")
}

// ParseCreateBufferReply is strict.
func ParseCreateBufferReply(b []byte) (CreateBufferReply, error) { return parse[CreateBufferReply](b) }

// CreateFenceRequest asks for a timeline.
type CreateFenceRequest struct{ Initial uint64 }

func (m CreateFenceRequest) AppendTo(b []byte) []byte { return appendU64(b, m.Initial) }
func (m *CreateFenceRequest) decode(r *reader)        { m.Initial = r.u64("initial") }

// ParseCreateFenceRequest is strict.
func ParseCreateFenceRequest(b []byte) (CreateFenceRequest, error) {
	return parse[CreateFenceRequest](b)
}

// FenceState is the state of a fence: the reply of FenceState and FenceWait.
type FenceState struct {
	Reached  uint64
	Promised uint64
	Outcome  outcome.Outcome // pending: not ended, or the wait's time is up
}

func (m FenceState) AppendTo(b []byte) []byte {
	return appendOutcome(appendU64(appendU64(b, m.Reached), m.Promised), m.Outcome)
}

func (m *FenceState) decode(r *reader) {
	m.Reached = r.u64("reached")
	m.Promised = r.u64("promised")
	m.Outcome = r.outcome()
}

// ParseFenceState is strict.
func ParseFenceState(b []byte) (FenceState, error) { return parse[FenceState](b) }

// FenceWaitRequest waits until a fence has reached Value.
type FenceWaitRequest struct {
	Handle       uint64
	Value        uint64
	TimeoutNanos uint64
}

func (m FenceWaitRequest) AppendTo(b []byte) []byte {
	return appendU64(appendU64(appendU64(b, m.Handle), m.Value), m.TimeoutNanos)
}

func (m *FenceWaitRequest) decode(r *reader) {
	m.Handle = r.handle("handle")
	m.Value = r.u64("value")
	m.TimeoutNanos = r.u64("timeoutNanos")
}

// ParseFenceWaitRequest is strict.
func ParseFenceWaitRequest(b []byte) (FenceWaitRequest, error) { return parse[FenceWaitRequest](b) }

// FenceSignalRequest signals a fence from the client's side.
type FenceSignalRequest struct {
	Handle uint64
	Value  uint64
}

func (m FenceSignalRequest) AppendTo(b []byte) []byte {
	return appendU64(appendU64(b, m.Handle), m.Value)
}

func (m *FenceSignalRequest) decode(r *reader) {
	m.Handle = r.handle("handle")
	m.Value = r.u64("value")
}

// ParseFenceSignalRequest is strict.
func ParseFenceSignalRequest(b []byte) (FenceSignalRequest, error) {
	return parse[FenceSignalRequest](b)
}

// CreateQueueRequest asks for a ring; 0 takes the service's default.
type CreateQueueRequest struct {
	Entries  uint32
	ArgBytes uint32
}

func (m CreateQueueRequest) AppendTo(b []byte) []byte {
	return appendU32(appendU32(b, m.Entries), m.ArgBytes)
}

func (m *CreateQueueRequest) decode(r *reader) {
	m.Entries = r.u32("entries")
	m.ArgBytes = r.u32("argBytes")
}

// ParseCreateQueueRequest is strict.
func ParseCreateQueueRequest(b []byte) (CreateQueueRequest, error) {
	return parse[CreateQueueRequest](b)
}

// CreateQueueReply comes with the ring's memfd, the submission wake and the
// completion wake, in this order.
type CreateQueueReply struct {
	Handle   uint64
	Entries  uint32
	ArgBytes uint32
}

func (m CreateQueueReply) AppendTo(b []byte) []byte {
	return appendU32(appendU32(appendU64(b, m.Handle), m.Entries), m.ArgBytes)
}

func (m *CreateQueueReply) decode(r *reader) {
	m.Handle = r.handle("handle")
	m.Entries = r.u32("entries")
	m.ArgBytes = r.u32("argBytes")
}

// ParseCreateQueueReply is strict.
func ParseCreateQueueReply(b []byte) (CreateQueueReply, error) { return parse[CreateQueueReply](b) }
