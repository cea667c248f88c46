// Package lm is the contract between a language model that runs and those who serve it
// to others: HTTP, Cap'n Proto, a terminal.
//
// Text that comes is pulled: a Stream hands out what is there and otherwise waits. A
// stream that nobody pulls stops its own request after a bounded number of tokens, and
// nobody else's; one that is closed, or whose context ends, is cancelled, and what it
// held is given back at once.
//
// # How a generation ends
//
// By a Finish, which is no error, or by an error that carries a gpuerr.Code:
//
//	gpuerr.Invalid                     the request: the message names the field
//	gpuerr.Quota, gpuerr.Busy          no room now: asked and available; try later
//	gpuerr.DeviceLost, Disconnected    the device or its driver went; the model comes back by itself
//	gpuerr.Revoked                     the session was taken away, and with it the service
//	gpuerr.Closed                      the server stops
//
// What was handed out before an error is true, and is all there is.
package lm
