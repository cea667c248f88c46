// Package lm is the contract between a running language model and the packages that
// serve it to others: HTTP, Cap'n Proto, a terminal.
//
// Text is pulled: a Stream returns the tokens that are ready, and otherwise waits.
// A stream that nobody pulls stops only its own request, after a bounded number of
// tokens. A stream that is closed, or that loses its context, is cancelled, and
// frees everything at once.
//
// # How a generation ends
//
// A generation ends with a Finish, which is no error, or with an error that carries
// a gpuerr.Code:
//
//	gpuerr.Invalid                     the request: the message names the field
//	gpuerr.Quota, gpuerr.Busy          no room now: asked and available; try later
//	gpuerr.DeviceLost, Disconnected    the device or its driver was lost; the model recovers by itself
//	gpuerr.Revoked                     the session was revoked, and with it the service
//	gpuerr.Closed                      the server stops
//
// Tokens that were handed out before an error are right, and are all there are.
package lm
