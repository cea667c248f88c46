// Package client is the Go client of the GPU service.
//
// A program connects to its tenant socket, opens a session on a device, and
// holds nothing but capabilities from then on:
//
//	conn, err := client.Dial(ctx, "/run/capgpu/default.sock")
//	s, err := conn.Open(ctx, 0)
//	a, err := s.CreateBuffer(ctx, n*4, client.Storage)
//	mem, err := a.Map()                      // []byte, shared with the device
//	add, err := s.OpenProgram(ctx, "vecadd_f32")
//	q, err := s.CreateQueue(ctx, client.QueueOptions{})
//	_, err = q.Submit(&client.Launch{Program: add, Bindings: []client.Binding{{Buffer: a}, {Buffer: b}, {Buffer: c}}},
//		&client.Signal{Fence: f, Value: 1})
//	end, err := f.Wait(ctx, 1)               // end.Kind == outcome.OK
//
// # What is shared
//
// A Buffer's memory is mapped once into this process and once into the driver's;
// no byte is copied on the way. Commands go through a Queue's ring in shared
// memory: pushing, flushing and collecting completions that are there allocate
// nothing, and make no system call unless the other side sleeps. All else
// (create, close, wait for a fence) is one message on the session's socket.
//
// # Errors and outcomes
//
// Errors carry a gpuerr.Code: test with errors.Is(err, gpuerr.Quota). How work
// ended is no error but an outcome.Outcome: work that ran and failed has a nil
// error and an outcome other than OK. When a context ends first, methods return
// an error that is context.DeadlineExceeded or context.Canceled.
//
// # Programs
//
// Session.OpenProgram opens a program that the device has, by name.
// Session.LoadProgram hands it another one: SPIR-V, bare or in a bundle with a
// manifest (package program, docs/program-profile.md). A program that is refused is a
// gpuerr.Program that says where and why, by a stable code. Program.Info tells what a
// launch has to be like; a Launch without Grid and Block takes what suits the sizes of
// its bindings. ProgramInfo.Digest names what was loaded, here and in sessions
// restricted from this one.
//
// A program that does something undefined traps: its launch ends failed, the
// outcome says what and where, and the session is poisoned. Nothing that is queued
// behind it runs, and what would make or queue work answers gpuerr.Poisoned from then
// on; reading buffers, waiting for fences and closing go on. Use a session per
// program where one must not spoil another's work. Conn.OpenChecked opens a session in
// which races between lanes trap as well.
//
// So does work of a device that reached for memory that it was not granted: it ends
// failed, with cause iommuFault. Where that becomes known only after the work was told
// to be ok (docs/errors.md says when), Description.Poisoned tells of it, and the next
// call.
//
// # Lists
//
// A program that submits the same commands again and again records them once:
// Session.RecordList has them checked, and a Replay is one command that runs them all,
// with one completion. The parts that change each time, inline bytes or which part of a buffer
// a binding is, go along as a Patch:
//
//	step, err := s.RecordList(ctx, &client.Launch{…}, &client.Launch{…}, …)
//	for position := range n {
//		_, err = q.Submit(step.Replay(client.Patch{Command: 3, Inline: le32(position)}))
//	}
//
// # Ends
//
// Objects belong to their session and end with it. Session.Done is closed when
// that happens and Session.Err says why: gpuerr.Closed after Session.Close,
// gpuerr.Revoked when the service or an ancestor session ended it, and
// gpuerr.DeviceLost when the device is gone, and gpuerr.Disconnected when the driver
// died; from then on every method of the session and its objects fails with that error, and every waiter is woken.
// Sessions never come back. Conn.OpenReady waits until a successor driver is ready
// and opens a session on it; Conn.NextState tells only when one is.
//
// Every Close is idempotent and may be called from any goroutine; it returns nil
// if the object is gone already, for whatever reason. Session.Close ends all
// objects of the session, so a program may close only that. Closing a Conn
// leaves its sessions alive.
//
// # Mapped memory outlives Close
//
// A slice that Buffer.Map returned stays readable and writable until
// Buffer.Unmap, also after Buffer.Close, Session.Close or the death of the
// driver: a late access meets zeros, or memory that the same session has put to
// another use, but it never kills the process and never reaches another session.
// A program that reads results from a mapping asks Queue.Err after that whether they could
// have been zeros.
// The price is that every Map wants an Unmap. The driver cannot shrink the memory
// under a mapping either: only sealed memory is accepted. ReadAt and WriteAt need
// no such care.
//
// # Concurrency
//
// All methods are safe for concurrent use. A Queue is built for one goroutine
// that submits and one that collects; more are allowed, but then the order among
// them is theirs to settle, as is the order of one Submit among other pushes.
//
// Trust: the service is trusted to do the work, not with this process: its
// replies are parsed strictly, sizes are checked before memory is mapped, and
// nothing it sends makes a method panic.
//
// Locks: Session.mu, Buffer.mu and the two of a Queue are never held together.
// Queue.collect is held while a collector sleeps, and only by collectors.
package client
