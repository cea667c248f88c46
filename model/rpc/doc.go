// Package rpc serves a language model over Cap'n Proto: ModelServer, LanguageModel,
// Embedder and TokenStream of schema/capos.capnp.
//
// # Trust
//
// Clients are not trusted. internal/rpcguard stands between their bytes and this
// package. This package bounds every number and list in a call, by name. lm.Model,
// which trusts no request either, checks the rest. The interface is the permission:
// the holder of an Embedder can embed, and cannot generate.
//
// # What a connection holds
//
// At most maxStreams answers that have not ended, and their requests. A stream ends
// with its last token, with close, with the last reference to it and with its
// connection; an answer that has not ended then is cancelled, and gives everything
// back before the connection is over. The result of a call of next fits a message;
// the rest comes with the next call.
//
// # Places
//
// The number of connections is bounded, and a user of this machine has a share of
// them (peers.Places). If a new client exceeds its user's share, a silent client of
// that user loses its place and its connection; if all of them are active, the new
// client gets gpuerr.Busy. The asker of the model is the user, with the
// connection's name. A user has the same share through many connections, or over
// HTTP, as through one.
package rpc
