package instrument

import (
	"capgpu/program/spirv"
)

// helper is the id of a function that is written if something calls it.
func (r *rewriter) helper(id *spirv.ID) spirv.ID {
	if *id == 0 {
		*id = r.newID()
	}
	return *id
}

// note records a trap of the lane unless ok is true, or the lane had one before.
func (r *rewriter) note(ok spirv.ID, s site, indices []spirv.ID) {
	r.sites = append(r.sites, s)
	n := len(indices)
	for len(r.helpers.note) <= n {
		r.helpers.note = append(r.helpers.note, 0)
	}
	for len(r.vars.index) < n {
		r.vars.index = append(r.vars.index, r.private(r.u32()))
	}

	args := append([]spirv.ID{r.helper(&r.helpers.note[n]), ok, r.word(uint32(firstSite + len(r.sites) - 1))}, indices...)
	r.op(spirv.OpFunctionCall, r.void(), args...)
}

// never is false.
func (r *rewriter) never() spirv.ID { return r.null(&r.late, r.boolean()) }

// writeHelpers writes the functions that were called.
func (r *rewriter) writeHelpers() {
	for n, id := range r.helpers.note {
		if id != 0 {
			r.writeNote(id, n)
		}
	}
	if r.helpers.poll != 0 {
		r.writePoll()
	}
	r.writeRecord()
	r.writeClaim()
}

func (r *rewriter) begin(id, result spirv.ID, params ...spirv.ID) (args []spirv.ID) {
	r.body.put(spirv.OpFunction, words(result, id, uint32(spirv.FunctionControlNone), r.function(result, params...))...)
	for _, t := range params {
		args = append(args, r.op(spirv.OpFunctionParameter, t))
	}
	r.label(r.newID())
	return args
}

// writeNote writes void note(bool ok, uint site, uint index…). It has no control
// flow, so that a compiler may move memory accesses across it.
func (r *rewriter) writeNote(id spirv.ID, n int) {
	u, b := r.u32(), r.boolean()
	params := []spirv.ID{b, u}
	for range n {
		params = append(params, u)
	}

	args := r.begin(id, r.void(), params...)
	had := r.load(u, r.vars.site)
	first := r.op(spirv.OpIEqual, b, had, r.word(siteNone))
	take := r.op(spirv.OpLogicalAnd, b, first, r.op(spirv.OpLogicalNot, b, args[0]))
	r.do(spirv.OpStore, r.vars.site, r.op(spirv.OpSelect, u, take, args[1], had))
	for k := range n {
		v := r.vars.index[k]
		r.do(spirv.OpStore, v, r.op(spirv.OpSelect, u, take, args[2+k], r.load(u, v)))
	}
	r.do(spirv.OpReturn)
	r.do(spirv.OpFunctionEnd)
}

// writePoll writes bool poll(uint more): whether the lane has to leave its loops,
// before more rounds. Once it has, each further loop asks before its first round.
func (r *rewriter) writePoll() {
	u, b := r.u32(), r.boolean()
	args := r.begin(r.helpers.poll, b, u)
	sum := func(a, more spirv.ID) spirv.ID { // or the greatest number
		n := r.op(spirv.OpIAdd, u, a, more)
		return r.op(spirv.OpSelect, u, r.op(spirv.OpULessThan, b, n, a), r.word(1<<32-1), n)
	}
	rounds := sum(r.load(u, r.vars.rounds), r.op(spirv.OpISub, u, r.word(PollRounds), r.load(u, r.vars.left)))
	rounds = sum(rounds, args[0])
	r.do(spirv.OpStore, r.vars.rounds, rounds)
	stop := r.op(spirv.OpAtomicLoad, u, r.trapWord(r.word(1)), r.scope(), r.word(0))
	stopped := r.op(spirv.OpINotEqual, b, stop, r.word(0))
	leave := r.op(spirv.OpLogicalOr, b, stopped, r.op(spirv.OpUGreaterThanEqual, b, rounds, r.load(u, r.vars.most)))
	r.do(spirv.OpStore, r.vars.left, r.op(spirv.OpSelect, u, leave, r.word(1), r.word(PollRounds)))

	for len(r.helpers.note) == 0 {
		r.helpers.note = append(r.helpers.note, 0)
	}
	why := r.op(spirv.OpSelect, u, stopped, r.word(siteStopped), r.word(siteTooLong))
	stays := r.op(spirv.OpLogicalNot, b, leave)
	known := r.helpers.note[0] != 0
	r.op(spirv.OpFunctionCall, r.void(), r.helper(&r.helpers.note[0]), stays, why)
	r.do(spirv.OpReturnValue, leave)
	r.do(spirv.OpFunctionEnd)
	if !known {
		r.writeNote(r.helpers.note[0], 0)
	}
}

// writeClaim writes void claim(): a lane that has something to tell takes the slot
// of its entry, unless another lane was first. It is called before each barrier, and
// so does no more than that.
func (r *rewriter) writeClaim() {
	u, b := r.u32(), r.boolean()
	tell, done := r.newID(), r.newID()
	r.begin(r.helper(&r.helpers.claim), r.void())
	s := r.load(u, r.vars.site)
	r.branch(r.op(spirv.OpINotEqual, b, s, r.load(u, r.vars.told)), tell, done, done)

	r.label(tell)
	r.do(spirv.OpStore, r.vars.told, s)
	none := r.word(0)
	old := r.op(spirv.OpAtomicCompareExchange, u, r.slotWord(SiteOff), r.scope(), none, none, s, none)
	r.do(spirv.OpStore, r.vars.mine, r.op(spirv.OpIEqual, b, old, none))
	r.do(spirv.OpBranch, done)
	r.label(done)
	r.do(spirv.OpReturn)
	r.do(spirv.OpFunctionEnd)
}

// writeRecord writes void record(), which is called before each return of the entry
// point: if the slot is the lane's, its words go there.
func (r *rewriter) writeRecord() {
	u, b := r.u32(), r.boolean()
	won, done := r.newID(), r.newID()
	r.begin(r.helper(&r.helpers.record), r.void())
	r.op(spirv.OpFunctionCall, r.void(), r.helper(&r.helpers.claim))
	r.branch(r.load(b, r.vars.mine), won, done, done)

	r.label(won)
	lane := r.builtIn(spirv.BuiltInLocalInvocationIndex, 1)
	r.do(spirv.OpStore, r.slotWord(LaneOff), lane[0])
	for k, v := range r.builtIn(spirv.BuiltInWorkgroupId, 3) {
		r.do(spirv.OpStore, r.slotWord(GroupOff+4*k), v)
	}
	for k, v := range r.vars.index {
		r.do(spirv.OpStore, r.slotWord(IndexOff+4*k), r.load(u, v))
	}
	r.op(spirv.OpAtomicUMin, u, r.trapWord(r.word(0)), r.scope(), r.word(0), r.load(u, r.vars.entry))
	r.do(spirv.OpBranch, done)
	r.label(done)
	r.do(spirv.OpReturn)
	r.do(spirv.OpFunctionEnd)
}

// trapWord is a pointer to a word in the head of the trap buffer.
func (r *rewriter) trapWord(member spirv.ID) spirv.ID {
	return r.op(spirv.OpAccessChain, r.trapPointer(), r.trap, member)
}

// slotWord is a pointer to a word of the entry's slot.
func (r *rewriter) slotWord(off int) spirv.ID {
	return r.op(spirv.OpAccessChain, r.trapPointer(), r.trap, r.word(2), r.load(r.u32(), r.vars.entry), r.word(uint32(off/4)))
}

func (r *rewriter) trapPointer() spirv.ID { return r.pointer(spirv.StorageClassStorageBuffer, r.u32()) }

// scope is that of the atomic operations on the trap buffer.
func (r *rewriter) scope() spirv.ID {
	if r.vulkan() {
		return r.word(uint32(spirv.ScopeQueueFamily))
	}
	return r.word(uint32(spirv.ScopeDevice))
}

func (r *rewriter) vulkan() bool {
	return spirv.MemoryModel(r.m.MemoryModel.Args[1]) == spirv.MemoryModelVulkan
}

// writeEntry writes the entry point. Its head comes last, when all that the functions
// need is known: the prologue, in a block before the program's first.
//
//	prologue ─► skip: return, because an earlier entry has ended early
//	        └─► ready: lengths, shared memory ─► the program's blocks
func (r *rewriter) writeEntry() error {
	whole := r.body
	r.body = nil
	if err := r.writeFunction(r.p.Entry); err != nil {
		return err
	}

	rest := r.body
	r.body = whole
	r.body.copy(&r.p.Entry.Def)
	r.label(r.newID())
	r.body = append(r.body, r.entryVars...)
	r.prologue()
	r.do(spirv.OpBranch, r.p.Entry.Blocks[0].Label)
	r.body = append(r.body, rest...)
	return nil
}

func (r *rewriter) prologue() {
	u, b := r.u32(), r.boolean()
	skip, ready := r.newID(), r.newID()
	at := r.op(spirv.OpAccessChain, r.pointer(spirv.StorageClassPushConstant, u), r.inline, r.word(r.entryMember))
	entry := r.load(u, at)
	first := r.load(u, r.trapWord(r.word(0)))
	r.branch(r.op(spirv.OpULessThan, b, first, entry), skip, ready, ready)

	r.label(skip)
	r.do(spirv.OpReturn)

	r.label(ready)
	r.do(spirv.OpStore, r.vars.entry, entry)
	lengths := make(map[uint32]spirv.ID)
	length := func(binding uint32) spirv.ID {
		if lengths[binding] == 0 {
			lengths[binding] = r.load(u, r.slotWord(LengthsOff+4*int(binding)))
		}
		return lengths[binding]
	}

	for binding, v := range r.lengths {
		if v != 0 {
			r.do(spirv.OpStore, v, length(uint32(binding)))
		}
	}

	for _, c := range r.countOrder {
		n := length(c.binding)
		some := r.op(spirv.OpUGreaterThanEqual, b, n, r.word(c.need))
		rest := r.op(spirv.OpUDiv, u, r.op(spirv.OpISub, u, n, r.word(c.need)), r.word(c.stride))
		count := r.op(spirv.OpSelect, u, some, r.op(spirv.OpIAdd, u, rest, r.word(1)), r.word(0))
		r.do(spirv.OpStore, r.counts[c], count)
	}

	if r.loops {
		r.do(spirv.OpStore, r.vars.left, r.word(PollRounds))
		r.do(spirv.OpStore, r.vars.most, r.load(u, r.slotWord(RoundsOff)))
	}

	r.clearShared()
}

// clearShared makes shared memory zero: lane i writes the elements i, i + lanes, …
// of each array; those of arrays in arrays one after the other.
func (r *rewriter) clearShared() {
	if len(r.p.Shared) == 0 || !r.cleared {
		return
	}

	u, b := r.u32(), r.boolean()
	lane := r.builtIn(spirv.BuiltInLocalInvocationIndex, 1)[0]
	lanes := r.word(1)
	for k, n := range [3]uint32{r.p.Info.Block.X, r.p.Info.Block.Y, r.p.Info.Block.Z} {
		id := r.word(n)
		if r.p.BlockIDs[k] != 0 {
			id = r.asWord(r.p.BlockIDs[k])
		}
		lanes = r.op(spirv.OpIMul, u, lanes, id)
	}

	for _, v := range r.p.Shared {
		t := r.typeOf(v).elem
		n, sizes := r.word(1), []spirv.ID(nil)
		for t.op == spirv.OpTypeArray {
			size := r.bound(t)
			if len(sizes) == 0 {
				n = size
			} else {
				n = r.op(spirv.OpIMul, u, n, size)
			}
			sizes, t = append(sizes, size), t.elem
		}
		if t.launch {
			r.refuse(r.m.Def(v), "a structure in shared memory with an array whose length the launch decides")
			return
		}

		before, head, test, each, next, done := r.newID(), r.newID(), r.newID(), r.newID(), r.newID(), r.newID()
		r.do(spirv.OpBranch, before)
		r.label(before)
		r.do(spirv.OpBranch, head)
		r.label(head)
		i, more := r.newID(), r.newID()
		r.opAs(i, spirv.OpPhi, u, lane, before, more, next)
		r.body.put(spirv.OpLoopMerge, uint32(done), uint32(next), uint32(spirv.LoopControlNone))
		r.do(spirv.OpBranch, test)
		r.label(test)
		r.do(spirv.OpBranchConditional, r.op(spirv.OpULessThan, b, i, n), each, done)

		r.label(each)
		to := v
		if len(sizes) > 0 {
			indices, rest := make([]spirv.ID, len(sizes)), i
			for k := len(sizes) - 1; k > 0; k-- {
				indices[k] = r.op(spirv.OpUMod, u, rest, sizes[k])
				rest = r.op(spirv.OpUDiv, u, rest, sizes[k])
			}
			indices[0] = rest
			to = r.op(spirv.OpAccessChain, r.pointer(spirv.StorageClassWorkgroup, t.id), append([]spirv.ID{v}, indices...)...)
		}
		r.body.put(spirv.OpStore, words(to, r.null(&r.late, t.id), r.shares())...)
		r.do(spirv.OpBranch, next)

		r.label(next)
		r.opAs(more, spirv.OpIAdd, u, i, lanes)
		r.do(spirv.OpBranch, head)
		r.label(done)
	}

	group := r.word(uint32(spirv.ScopeWorkgroup))
	order := spirv.MemorySemanticsAcquireRelease | spirv.MemorySemanticsWorkgroupMemory
	if r.vulkan() {
		order |= spirv.MemorySemanticsMakeAvailable | spirv.MemorySemanticsMakeVisible
	}
	r.do(spirv.OpControlBarrier, group, group, r.word(uint32(order)))
}

// shares are the memory operands of a store that other lanes are to see.
func (r *rewriter) shares() []uint32 {
	if r.vulkan() {
		return []uint32{uint32(spirv.MemoryAccessNonPrivatePointer)}
	}
	return nil
}
