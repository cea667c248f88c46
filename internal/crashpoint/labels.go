package crashpoint

// Label is a place in the table.
type Label struct {
	Label string
	What  string // of the process, in its own words: it dies …
}

// Table is every place there is, in the order of a process's life.
var Table = []Label{
	// The manager: at its start.
	{"manager.start.locked", "with the run directory locked, before the sockets of an earlier one are removed"},
	{"manager.start.recorded", "when its start is recorded, before it has a jailer"},
	{"manager.start.devices", "with every function open and no socket"},
	{"manager.listen.made", "with a socket made that has not its name yet"},
	{"manager.start.sockets", "with all sockets there, before a driver is started"},
	// Points of an epoch.
	{"manager.grants.half", "between the first charge of the grants and the second"},
	{"manager.epoch.reset", "with the function reset, before the driver's record"},
	{"manager.spawn.cell", "with a cell made, before a process is in it"},
	{"manager.spawn.started", "with a process started that it does not wait for yet"},
	{"manager.epoch.spawned", "while the driver becomes ready"},
	{"manager.epoch.reaped", "with the driver dead and reaped, before the function is stopped"},
	{"manager.epoch.quiesced", "with the function stopped, before the driver's memory is taken back"},
	{"manager.epoch.revoked", "with all taken back, before that is recorded"},
	{"manager.standby.spawned", "with a process that is to wait for its turn, and no record of it"},
	{"manager.standby.taken", "with the driver dead and the waiting process taken, before that has a grant"},
	{"manager.respawn.waiting", "between two drivers"},
	// Points of a live upgrade.
	{"manager.upgrade.spawned", "with a successor that has no grants yet"},
	{"manager.upgrade.told", "with all told to the successor, and the memory still the driver's"},
	{"manager.upgrade.committed", "with the memory the successor's, and both drivers there"},
	{"manager.upgrade.alone", "with the driver that is replaced dead, before the successor goes on"},
	{"manager.upgrade.gone", "with the successor at work, before anybody knows of it"},
	// Points of a reload of the policy.
	{"manager.reload.prepared", "with another policy recorded, and nothing of it in force"},
	{"manager.reload.committed", "with another policy in force, before a driver has heard of it"},
	// Points of memory.
	{"manager.dma.made", "with memory made and charged, before the device has it"},
	{"manager.dma.mapped", "with memory mapped, before that is recorded"},
	{"manager.dma.recorded", "with the map recorded, before the driver hears of it"},
	{"manager.dma.unmapped", "between the unmap and the scrub"},
	{"manager.dma.punched", "with the pages punched out, before the charges are back"},
	{"manager.dma.disposed", "with the memory gone, before that is recorded"},
	// Points of clients.
	{"manager.attach.sent", "with a session open that has no record"},
	{"manager.attach.recorded", "with a session recorded that the client has not heard of"},
	{"manager.gate.started", "with a gate that has its client, while it still holds the client's connection itself"},
	// At its end.
	{"manager.stop.begun", "when it is to stop"},
	{"manager.listen.removed", "with a socket's name removed, before it is closed"},
	{"manager.stop.refused", "with nobody let in any more, and the drivers at work"},
	{"manager.stop.devices", "with the drivers gone and the functions given back"},
	{"manager.stop.cells", "with every process gone"},
	// The audit log.
	{"audit.open.cut", "with what was torn cut off, before that is recorded"},
	{"audit.append.half", "in the middle of a write, within a record"},
	{"audit.append.written", "with a write done that is not on disk"},
	{"audit.rotate.created", "with the next segment on disk, without its name"},
	{"audit.rotate.linked", "with the full segment named twice"},
	{"audit.rotate.replaced", "with the next segment current, before its name is on disk"},
	{"audit.remove.removed", "with an old segment removed, before that is on disk"},

	// The driver: at its start and end.
	{"driver.start.confined", "with nothing but its two links"},
	{"driver.start.granted", "with its grants"},
	{"driver.start.opened", "with its device open, before it says Ready"},
	{"driver.start.ready", "when it has said Ready"},
	{"driver.shutdown.begun", "when it is to shut down"},
	{"driver.shutdown.closed", "with its device closed, before it says so"},
	// Points of requests.
	{"driver.attach.received", "with the socket of a session that is not open"},
	{"driver.attach.opened", "with a session open, before that is answered"},
	{"driver.status.read", "while it describes itself"},
	{"driver.policy.ended", "with sessions ended that the policy allows no longer, before the manager hears of it"},
	{"driver.answer.read", "with a request of a client, before anything is done"},
	{"driver.answer.made", "with a request done, before that is answered"},
	{"driver.buffer.charged", "with a buffer charged that has no memory"},
	{"driver.buffer.mapped", "with a buffer that has memory and no handle"},
	// Points of work.
	{"driver.submit.taken", "with an entry taken from the ring, before it is charged"},
	{"driver.submit.charged", "with an entry charged, before it is looked at"},
	{"driver.submit.resolved", "with an entry resolved and its buffers pinned"},
	{"driver.job.completed", "when the device says that work is done"},
	{"driver.job.unpinned", "with the work done and let go, before it has an outcome"},
	{"driver.fence.ended", "with a fence's point reached, before its queue tells of it"},
	{"driver.completion.told", "with completions made, before they are published"},
	{"driver.completion.published", "when completions are published"},
	// Points of the end of sessions and devices.
	{"driver.reset.begun", "before the device is reset"},
	{"driver.reset.done", "with the device reset, before its work has ended"},
	{"driver.close.cut", "with a session closed, before that is answered"},
	{"driver.reclaim.step", "while a session is reclaimed"},
	{"driver.memory.freeing", "before memory of a closed session is freed"},
	{"driver.reclaim.ended", "with a session reclaimed"},
	// Points of a live upgrade: the driver that is replaced, and its successor.
	{"driver.handover.begun", "asked to stop, before anything is"},
	{"driver.handover.frozen", "with everything stopped, before anything is told"},
	{"driver.handover.told", "with everything told to the successor"},
	{"driver.takeover.heard", "with everything heard and nothing made"},
	{"driver.takeover.imported", "with the device made, and no session served"},
	{"driver.takeover.going", "when it is to go on"},

	// The gate.
	{"gate.start.confined", "with its client and a tenant socket"},
	{"gate.start.greeted", "before it serves its client"},
	{"gate.open.asked", "before it asks for a session"},
	{"gate.open.opened", "with a session that its client has no capability of"},
	{"gate.buffer.asked", "before it asks for a buffer"},
	{"gate.buffer.made", "with a buffer and its descriptor that its client has not heard of"},
	{"gate.submit.read", "with commands read, before they are queued"},
	{"gate.submit.queued", "with commands queued, before that is answered"},
	{"gate.completions.taken", "with completions taken that its client has not heard of"},
}
