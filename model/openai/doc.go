// Package openai serves a language model over HTTP, in the words of the OpenAI API:
//
//	GET  /v1/models, /v1/models/{id}
//	POST /v1/completions, /v1/chat/completions   also as server-sent events
//	POST /v1/embeddings
//	GET  /healthz, /metrics, /v1/status, /       for operators, Prometheus and people
//
// Clients are not trusted. Bodies, lists, texts and numbers are bounded before they
// are used, an answer that nobody reads stops only its own request, and a client
// that leaves cancels its requests. A requested feature that the model lacks
// (tools, an output format, …) is refused by name. Fields that change nothing are
// ignored, because clients send many.
//
// # Shares
//
// Every bounded resource is divided among peers (package peers: a user on a UNIX
// socket, else an address). Within a peer it is divided among the "user"s that the
// peer names, or else among its connections. This applies to connections, to
// requests that are being served, to the memory of large bodies and of answers that
// are not streamed, and to the model itself. A connection that waits for its client
// gives its place to another of its peer, or, if no place is left at all, to one of
// a peer that has fewer. A request takes a place only when its body has come whole.
// A body that pauses for Options.BodyTimeout ends, and so does one that is slower
// than minBodyRate on the whole. A connection that does not begin a request ends
// after headerTimeout, or after idleTimeout if it had one before.
//
// An answer that is not streamed is in memory until it is whole: one that takes
// more than Options.MaxAnswerBytes is refused (E_INVALID, param logprobs or
// max_tokens), and so is one beyond the peer's share of Options.MaxGatheredBytes
// (E_BUSY). A stream has neither bound.
//
// # Access
//
// With Options.Token, a client must know it. Without, every client that can connect
// has access: the operator listens on a UNIX socket or on loopback. As a protection
// against web pages that the same person has open, requests over TCP must then name
// a loopback host, and no request may come from another origin.
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
