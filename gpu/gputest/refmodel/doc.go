// Package refmodel is the slow obvious model of what a submission means: which entry of
// a ring is refused, with which code, and what the device is to be told of one that is
// not. It is written from docs/wire.md, which it follows section by section, and shares
// no code with the driver that it is held against (gpu/gputest/difftest):
//
//	form.go    what can be said of an entry alone
//	work.go    launches, copies and fills: handles, ranges, limits
//	list.go    recordings, replays and patches
//	queue.go   the order of checks; fences and dependencies; what is charged
//
// The model knows what a session has (objects.go) because its caller tells it of every
// object that was made or closed. It takes one entry after the other, as a device
// would that does each at once.
//
// Trusted is the caller. An entry and the arena may hold anything.
//
// Nothing is locked: one goroutine has a Session and its Queues.
package refmodel
