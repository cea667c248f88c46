// Package server shares one language model among many requests: it implements lm.Model
// over a model that lies in buffers of a GPU session (package llama).
//
//	Generate ─► line (bounded, shared fairly) ─► running: pages of the cache ─► passes ─► Stream
//	               ▲                               │
//	               └── returning: recomputed ◄─────┘ pages run out: who has the most gives some up
//
// # Passes
//
// One goroutine, that of Run, uses the model. Each pass takes one row of every running
// request that has a token to go on with, and a bounded chunk of rows of prompts, so that
// a long prompt delays the others by one pass at a time. Passes grow while they are short,
// so that no driver takes one for hung. A request that runs alone and
// takes the most likely token always decodes ahead on the device, and stops that within a
// few tokens when another comes.
//
// # Shares
//
// Requests are those of a user of a peer (lm.Asker). All that they share is divided among
// peers first, and a peer's part among its users, so that neither a second name nor a
// second connection is worth anything. Places to wait in are a peers.Shares. Places, time
// of passes and of tokenizing, and pages are a fair, which takes what has had the least
// next.
//
// # Room
//
// A request is refused at once where it could never fit (gpuerr.Quota, in positions), or
// where too many of its user or peer wait (gpuerr.Busy). Texts are tokenized a few at a
// time, and none to its end that is too long. A request begins when the pages for its
// prompt and a margin are free, and takes pages as its text grows. When they run out, the
// youngest request of the user with the most pages, of the peer with the most, gives all of
// its pages up and is computed again later, from its own tokens and with its own random
// numbers: it loses time, never text. The oldest is never the victim, and whatever was
// accepted fits alone, so that the work always comes to an end.
//
// # Streams
//
// An answer that has ended keeps what its client may still read. One that nobody pulls
// stops after Options.Ahead tokens. It keeps its pages as long
// as nobody else needs them. A request that is closed, or whose context ends, holds no
// page any more when Close returns: at most one pass later.
//
// # Ends
//
// When the device or its driver goes, every request that has begun ends with
// gpuerr.DeviceLost or gpuerr.Disconnected: at once, or where the driver hangs, within the
// bound that the session was told (client.Description.HangBound). Requests that have not
// begun wait for Options.Patience, and so does who comes meanwhile; after that they end
// with the same error, and Generate answers it until the model is back.
// The server opens a new session when the device is ready again, copies the weights from
// the file that is still mapped, and goes on. A session that was poisoned by a trap, and
// any pass that did not end well for a reason of its own, is treated the same way, since
// what is in the cache is not known any more. A pass that was reset by another's fault is
// computed again.
//
// A session that was revoked while its device goes on was taken away on purpose, and is not
// opened again behind the back of whoever did so: every request ends with gpuerr.Revoked
// and the reason, those that wait too, until Reopen. (A service that stops revokes its
// sessions as well; then the device is not ready any more, and the server waits for it.)
//
// # What a text depends on
//
// On the model, the request and its seed; not on who else is served, nor on how often the
// request had to begin anew.
//
// Locks: Server.mu is the only one; no call of the model that waits is made under it.
package server
