// Package attack is a hostile client of the built commands, while a victim of
// another tenant works beside it.
//
// There are several attacks for each of the classes that a client can be of: it is
// killed at each step of a conversation, stops with its ring half written, moves
// its ring's tail arbitrarily, changes entries while they are read, takes no
// completions, takes memory away, forges handles, asks for more capabilities than
// there are, sends garbage, takes a model server from its other users, and sends
// Cap'n Proto designed to break its reader. An attacker is a process of its own:
// this same program with a hidden first argument (RunIfAttacker). It is trusted
// only with the count of its attempts.
//
// The victim does checked work all the time: launches with known answers, and a
// checksum of memory that nobody else may touch. These must hold: the victim never
// has an error; the driver is the same process before and after; every attempt had
// a typed answer, or none because the attacker did not wait for it; nothing is
// charged when the attacker is gone; and the service holds the same as before:
// descriptors, memory, processes. A newcomer of the victim's tenant opens sessions
// and Cap'n Proto connections meanwhile, and waits for them at most twice as long
// as without an attack.
package attack
