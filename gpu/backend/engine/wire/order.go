package wire

import (
	"capgpu/gpuerr"
	"capgpu/program"
)

// Kind is what an order asks for.
type Kind uint8

const (
	// Hello is the first order, once; a descriptor comes with it, the reading end of a pipe: with
	// each byte in it the engine stops what runs at once (Device.Stop), and a Stop follows. The
	// answer has the Device.
	Hello        Kind = iota + 1
	Import            // ID: a memory; Bytes; its memfd comes with it
	Alloc             // ID: a memory of the device's own; Bytes
	Free              // ID: a memory
	Compile           // ID: a pipeline; Pipeline
	FreePipeline      // ID
	Record            // ID: a list; Entries
	FreeList          // ID
	Run               // ID: a list. Its answer comes when the run has ended, and has the Result
	RunOnce           // Entries, which are forgotten with the run; as Run
	Resume            // after a run that ended early, when all runs have ended
	Stop              // the runs that were ordered before it end soon. It has no answer
	numKinds
)

var kindNames = [numKinds]string{"", "hello", "import", "alloc", "free", "compile", "freePipeline", "record", "freeList", "run", "runOnce", "resume", "stop"}

func (k Kind) String() string {
	if k < numKinds && k > 0 {
		return kindNames[k]
	}
	return "unknown"
}

// HasDescriptor reports whether a descriptor comes with the order.
func (k Kind) HasDescriptor() bool { return k == Hello || k == Import }

// Runs reports whether the order is a run of a list.
func (k Kind) Runs() bool { return k == Run || k == RunOnce }

// Order is one. Which fields mean something is said at its Kind.
type Order struct {
	Kind     Kind
	Seq      uint32 // names the order in its answer
	ID       uint32
	Bytes    uint64
	Pipeline *Pipeline
	Entries  []Entry
}

// Answer is an engine's, to each order but Stop. Those of runs come in the order of the runs,
// and all others in the order of theirs.
type Answer struct {
	Kind Kind // of the order
	Seq  uint32
	// Code is None where the order was carried out. Lost: the device is of no more use to the
	// engine.
	Code   gpuerr.Code
	Lost   bool
	Text   string  // at most MaxTextBytes
	Device *Device // Hello
	Result *Result // a run that was carried out
}

// MaxTextBytes bounds Answer.Text.
const MaxTextBytes = 512

// Bounds of an order.
const (
	MaxModuleBytes = 16 << 20
	MaxConstants   = 80 // the manifest's, the workgroup's and the dynamic array's
	MaxEntryName   = 256
	MaxOrderBytes  = MaxModuleBytes + 1<<20
	MaxAnswerBytes = 32 << 10
)

// AppendOrder appends an order as it travels. The core builds only orders that ParseOrder takes.
func AppendOrder(b []byte, o *Order) []byte {
	w := writer{b}
	w.u8(uint8(o.Kind))
	w.u32(o.Seq)
	switch o.Kind {
	case Import, Alloc:
		w.u32(o.ID)
		w.u64(o.Bytes)
	case Free, FreePipeline, FreeList, Run:
		w.u32(o.ID)
	case Compile:
		w.u32(o.ID)
		w.pipeline(o.Pipeline)
	case Record:
		w.u32(o.ID)
		w.entries(o.Entries)
	case RunOnce:
		w.entries(o.Entries)
	}
	return w.b
}

// ParseOrder reads one. Nothing of it aliases b. Numbers are within the limits of this package;
// those of the device, and whether an id is known, are the engine's to check.
func ParseOrder(b []byte) (*Order, error) {
	r := reader{b: b, what: "order"}
	o := &Order{Kind: Kind(r.u8("kind")), Seq: r.u32("seq")}
	switch o.Kind {
	case Hello, Resume, Stop:
	case Import, Alloc:
		o.ID, o.Bytes = r.u32("id"), r.u64("bytes")
	case Free, FreePipeline, FreeList, Run:
		o.ID = r.u32("id")
	case Compile:
		o.ID = r.u32("id")
		o.Pipeline = r.pipeline()
	case Record:
		o.ID = r.u32("id")
		o.Entries = r.entries()
	case RunOnce:
		o.Entries = r.entries()
	default:
		r.bad("kind %d is none", o.Kind)
	}
	return o, r.end()
}

func (w *writer) pipeline(p *Pipeline) {
	w.bytes(p.Module)
	w.bytes([]byte(p.Entry))
	w.u32(p.Bindings)
	w.u32(p.PushBytes)
	w.u32(uint32(len(p.Constants)))
	for _, c := range p.Constants {
		w.u32(c.ID)
		w.u64(c.Value)
	}
	w.dim(p.Block)
	w.u32(p.SharedBytes)
}

func (r *reader) pipeline() *Pipeline {
	p := &Pipeline{Module: r.bytes("module", MaxModuleBytes), Entry: string(r.bytes("entry", MaxEntryName))}
	p.Bindings = r.atMost("bindings", MaxBindings)
	p.PushBytes = r.atMost("pushBytes", MaxPush)
	n := r.atMost("constants", MaxConstants)
	for range n {
		p.Constants = append(p.Constants, program.Constant{ID: r.u32("constant"), Value: r.u64("constant")})
	}
	p.Block = r.dim("block", program.MaxBlockThreads)
	p.SharedBytes = r.atMost("sharedBytes", program.MaxSharedBytes)
	if n := p.Block.Count(); r.err == nil && n > program.MaxBlockThreads { // no product of three of 10 bits is beyond 64
		r.bad("a workgroup of %d lanes", n)
	}
	if r.err == nil && p.PushBytes < 4 {
		r.bad("%d bytes of push constants have no room for the entry's number", p.PushBytes)
	}
	return p
}

func (w *writer) entries(all []Entry) {
	w.u32(uint32(len(all)))
	for i := range all {
		e := &all[i]
		w.u8(uint8(e.Op))
		w.u32(uint32(len(e.Spans)))
		for _, s := range e.Spans {
			w.u32(uint32(s.Memory))
			w.u64(s.Off)
			w.u64(s.Length)
		}

		if e.Op != OpLaunch {
			w.u32(e.Pattern)
			continue
		}
		w.u32(uint32(e.Pipeline))
		w.dim(e.Grid)
		w.u32(e.Rounds)
		for _, a := range e.Access {
			w.u8(uint8(a))
		}
		w.bytes(e.Push)
	}
}

func (r *reader) entries() []Entry {
	n := r.atMost("entries", MaxEntries)
	if r.err == nil && n == 0 {
		r.bad("a list without entries")
	}

	all := make([]Entry, 0, min(int(n), 1+len(r.b)/minEntryBytes))
	for range n {
		e := Entry{Op: Op(r.u8("op"))}
		spans := r.atMost("spans", MaxBindings)
		if want, ok := spansOf[e.Op]; ok && spans != want || e.Op == 0 || e.Op > OpFill {
			r.bad("an entry of op %d with %d spans", e.Op, spans)
		}
		if r.err != nil {
			return nil
		}

		for range spans {
			e.Spans = append(e.Spans, Span{Memory: MemoryID(r.u32("memory")), Off: r.u64("offset"), Length: r.u64("length")})
		}
		if e.Op == OpLaunch {
			r.launch(&e)
		} else {
			e.Pattern = r.u32("pattern")
			r.move(&e)
		}
		if r.err != nil {
			return nil
		}
		all = append(all, e)
	}
	return all
}

// minEntryBytes is what an entry has at least, so that a length makes no more memory than the
// bytes that came with it.
const minEntryBytes = 1 + 4 + 4

var spansOf = map[Op]uint32{OpCopy: 2, OpFill: 1}

func (r *reader) launch(e *Entry) {
	e.Pipeline = PipelineID(r.u32("pipeline"))
	e.Grid = r.dim("grid", program.MaxGrid)
	e.Rounds = r.u32("rounds")
	for i := range e.Spans {
		a := program.Access(r.u8("access"))
		if a == 0 || a > program.ReadWrite {
			r.bad("access %d of binding %d", a, i)
		}
		if e.Spans[i].Length > 1<<32-1 {
			r.bad("binding %d of %d bytes", i, e.Spans[i].Length)
		}
		e.Access = append(e.Access, a)
	}
	e.Push = r.bytes("push", MaxPush-4)
}

func (r *reader) move(e *Entry) {
	s := e.Spans
	switch {
	case e.Op == OpCopy && s[0].Length != s[1].Length:
		r.bad("a copy of %d bytes to %d", s[1].Length, s[0].Length)
	case e.Op == OpFill && (s[0].Off%4 != 0 || s[0].Length%4 != 0):
		r.bad("a fill of %d bytes at %d", s[0].Length, s[0].Off)
	}
}

// AppendAnswer appends an answer as it travels.
func AppendAnswer(b []byte, a *Answer) []byte {
	w := writer{b}
	w.u8(uint8(a.Kind))
	w.u32(a.Seq)
	w.u32(uint32(a.Code))
	w.flag(a.Lost)
	w.bytes([]byte(a.Text[:min(len(a.Text), MaxTextBytes)]))
	switch {
	case a.Code != gpuerr.None:
	case a.Kind == Hello:
		w.device(a.Device)
	case a.Kind.Runs():
		w.result(a.Result)
	}
	return w.b
}

// ParseAnswer reads one. Nothing of it aliases b.
func ParseAnswer(b []byte) (*Answer, error) {
	r := reader{b: b, what: "answer"}
	a := &Answer{Kind: Kind(r.u8("kind")), Seq: r.u32("seq")}
	code := r.u32("code")
	a.Code, a.Lost = gpuerr.Code(code), r.flag("lost")
	a.Text = string(r.bytes("text", MaxTextBytes))
	switch {
	case a.Kind == 0 || a.Kind >= numKinds || a.Kind == Stop:
		r.bad("kind %d has no answer", a.Kind)
	case code > 1<<16-1 || a.Code != gpuerr.None && !a.Code.Valid():
		r.bad("code %d is none", code)
	case a.Lost && a.Code == gpuerr.None:
		r.bad("the device is lost, and all is well")
	case a.Code != gpuerr.None:
	case a.Kind == Hello:
		a.Device = r.device()
	case a.Kind.Runs():
		a.Result = r.result()
	}
	return a, r.end()
}

func (w *writer) result(res *Result) {
	w.u32(res.Begun)
	w.flag(res.Skipped)
	w.u64(uint64(res.DeviceTime))
	w.flag(res.Early)
	if res.Early {
		w.b = append(w.b, res.Slot[:]...)
	}
}

func (r *reader) result() *Result {
	res := &Result{Begun: r.atMost("begun", MaxEntries), Skipped: r.flag("skipped")}
	res.DeviceTime = r.duration("deviceTime")
	if res.Early = r.flag("early"); res.Early {
		copy(res.Slot[:], r.take("slot", SlotBytes))
	}
	switch {
	case res.Skipped && (res.Early || res.Begun > 0):
		r.bad("a run that was skipped began")
	case !res.Skipped && res.Begun == 0:
		r.bad("a run that was not skipped began nothing")
	}
	return res
}
