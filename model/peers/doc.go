// Package peers identifies the peer at the other end of a connection, and divides
// bounded resources among peers, so that none of them can have all.
//
// A peer is an identity that costs something to multiply: a user of this machine on
// a UNIX socket, else an address (Behind). Names that a client makes up divide the
// share of its peer.
//
//	Shares   places, requests or bytes: a peer may hold three times what remains free
//	Places   connections: the same, and a quiet one loses its place to a new one
//
// The memory of both is bounded by the number of held places: they remember nothing
// of a peer that holds none.
package peers
