// Package server shares one language model among many requests: it implements
// lm.Model over a model in the buffers of a GPU session (package llama).
//
//	Generate ─► line (bounded, shared fairly) ─► running: pages of the cache ─► passes ─► Stream
//	               ▲                               │
//	               └── returning: recomputed ◄─────┘ pages run out: the largest holder gives some up
//
// # Passes
//
// Only the goroutine of Run uses the model. Each pass takes one row of every
// running request that has a next token, and a bounded chunk of rows of prompts. A
// long prompt so delays the others by one pass at a time. Passes grow only while
// they are short, so that no driver declares one hung. A request that runs alone
// and always takes the most likely token uses run-ahead decode on the device. It
// stops that within a few tokens when another request arrives.
//
// # Shares
//
// Every request belongs to a user of a peer (lm.Asker). Each shared resource is
// divided among peers first, and a peer's part among its users, so that neither a
// second name nor a second connection gains anything. A peers.Shares divides the
// places in the line. A fair tree divides running places, time of passes and of
// tokenizing, and pages; the share that has had the least is served next.
//
// # Room
//
// A request is refused at once where it could never fit (gpuerr.Quota, in
// positions), or where too many of its user or peer wait (gpuerr.Busy). Texts are
// tokenized a few at a time, and tokenizing stops when a text proves too long. A
// request begins when the pages for its prompt and a margin are free, and takes
// pages as its text grows. When pages run out, the victim is found at the peer with
// the most pages, at its user with the most: that user's youngest request gives up
// all of its pages. It is computed again later, from its own tokens and with its
// own random numbers: it loses time, never text. The oldest request is never the
// victim, and every accepted request fits alone, so the work always finishes.
//
// # Streams
//
// A finished answer keeps the text that its client may still read. An answer that
// nobody pulls stops after Options.Ahead tokens, and keeps its pages as long as no
// other request needs them. A request that is closed, or that has lost its context,
// holds no page when Close returns, at most one pass later.
//
// # Ends
//
// When the device or its driver goes, every request that has begun ends with
// gpuerr.DeviceLost or gpuerr.Disconnected. It ends at once, or, if the driver
// hangs, within the session's bound (client.Description.HangBound). Requests that
// have not begun wait for Options.Patience, as do requests that arrive meanwhile.
// After that they end with the same error, and Generate returns it until the model
// is back. When the device is ready again, the server opens a new session, copies
// the weights from the file, which is still mapped, and continues. A session that
// was poisoned by a trap, and a pass that failed for a reason of its own, are
// treated the same way, because the contents of the cache are unknown. A pass that
// was reset by another's fault is computed again.
//
// If a session is revoked while its device keeps running, somebody revoked it on
// purpose, and the server does not open another by itself. Every request, also a
// waiting one, ends with gpuerr.Revoked and the reason, until Reopen. (A service
// that stops revokes its sessions as well; then the device is not ready any more,
// and the server waits for it.)
//
// # What a text depends on
//
// A text depends on the model, the request and its seed. It depends neither on the
// other requests nor on how often the request was restarted.
//
// Locks: Server.mu is the only one. No call of the model that blocks is made under
// it.
package server
