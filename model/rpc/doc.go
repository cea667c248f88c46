// Package rpc serves a language model over Cap'n Proto: ModelServer, LanguageModel,
// Embedder and TokenStream of schema/capos.capnp.
//
// # Who is trusted
//
// Clients are not. internal/rpcguard stands between their bytes and this package; every
// number and list in a call is bounded here, by name, and what remains is for lm.Model to
// judge, which trusts no request either. The interface is the permission: who holds an
// Embedder embeds, and generates nothing.
//
// # What a connection holds
//
// At most maxStreams answers that have not ended, and their requests. A stream ends with
// its last token, with close, with the last reference to it and with its connection; an
// answer that has not ended then is cancelled, and has given back what it held before
// the connection is over. What a call of next returns fits a message; what does not comes
// with the next one.
//
// # Who has a place
//
// So many connections are served at a time, of which a user of this machine has a share
// (peers.Places). When that is taken, one of its clients that says nothing loses its place,
// and its connection, to the one that comes; where all of them use theirs that one is told
// gpuerr.Busy. Who asks the model is the user, and by which of its connections: it has the
// same share by all of them, and over HTTP, as by one.
package rpc
