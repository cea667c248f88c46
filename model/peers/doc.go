// Package peers says who is at the other end of a connection, and divides what there is a
// bounded number of among peers, so that none of them can have all of it.
//
// A peer is what nobody can have many of at no cost: a user of this machine on a UNIX
// socket, else an address (Behind). Names that a client makes up divide the share of its peer.
//
//	Shares   places, requests or bytes: a peer may hold three times what is left over
//	Places   connections: the same, and a quiet one loses its place to one that comes
//
// Both are bounded by what is held: nothing is remembered of a peer that holds nothing.
package peers
