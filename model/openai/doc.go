// Package openai serves a language model over HTTP, in the words of the OpenAI API:
//
//	GET  /v1/models, /v1/models/{id}
//	POST /v1/completions, /v1/chat/completions   also as server-sent events
//	POST /v1/embeddings
//	GET  /healthz, /metrics, /v1/status, /       for operators, Prometheus and people
//
// Who asks is not trusted. Bodies, lists, texts and numbers are bounded before they are
// used, an answer that nobody reads stops its own request only, and a client that goes
// away cancels what it asked for. What a request asks for and the model does not do
// (tools, an output format, …) is refused by name; fields that change nothing are
// ignored, as clients send many.
//
// # What one client can take from others
//
// Everything of which there is a bounded number is divided among peers (package peers: a
// user on a UNIX socket, else an address), and where it is known among the "user"s that a
// peer names, or its connections: connections, requests that are served, memory of large bodies, of answers
// that are not streamed, and the model itself. A connection that waits for its client gives
// its place to another of its peer, or where there are none at all, of a peer that has
// fewer. A request has a place when its body has come whole. A body that pauses for
// Options.BodyTimeout ends, and so does one that is slower than minBodyRate on the whole; a
// connection that does not begin a request ends after headerTimeout, or idleTimeout behind
// another.
//
// An answer that is not streamed is in memory until it is whole: one that takes more than
// Options.MaxAnswerBytes is refused (E_INVALID, param logprobs or max_tokens), and so is
// what has no room in the peer's share of Options.MaxGatheredBytes (E_BUSY). A stream has
// neither bound.
//
// # Who may ask
//
// With Options.Token, whoever knows it. Without, whoever can connect: the operator
// listens on a UNIX socket or on loopback. Against web pages that the same person has
// open, requests over TCP must then name a loopback host, and all must come from no
// other origin.
//
// # Errors
//
// The body is {"error": {message, type, param, code}}, where code is the stable name of a
// gpuerr.Code; a refused quota also tells resource, asked and available:
//
//	400  E_INVALID (param names the field), E_UNIMPLEMENTED
//	401  E_DENIED: no token, or a wrong one      403  E_DENIED: another host or origin
//	404  E_INVALID: no such model                413  E_INVALID: the body is too large
//	408  E_INVALID: the body did not come
//	429  E_QUOTA, E_BUSY …: with Retry-After
//	503  E_DEVICE_LOST, E_DISCONNECTED: with Retry-After, the model comes back by itself
//	503  E_REVOKED, E_CLOSED: with "x-should-retry: false"
//	500  E_INTERNAL: a bug; the log has it
//
// An error after the first event of a stream is an event with an "error" member, after
// which the stream ends without [DONE] and without a finish_reason.
package openai
