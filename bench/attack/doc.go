// Package attack is a client that means harm, against the built commands, while a victim
// of another tenant works beside it.
//
// There are several attacks for each of the classes that a client can be of: it is killed
// at each step of a conversation, stops with its ring half written, moves its ring's tail
// as it likes, changes entries while they are read, takes no completions, takes memory
// away, forges handles, asks for more capabilities than there are, sends garbage,
// takes a model server from its other users, and speaks Cap'n Proto that is meant to break
// who reads it. An attacker is a process of its
// own: this same program with a hidden first argument (RunIfAttacker). It is trusted with
// nothing but the count of its attempts.
//
// The victim does checked work all the time: launches with known answers, and a checksum
// of memory that nobody else may touch. What must hold is that it never has an error, that
// the driver is the same process before and after, that every attempt had an answer that
// is typed, or none because the attacker did not wait for it, that nothing is charged
// when the attacker is gone, and that the service holds what it held before: descriptors,
// memory, processes. A newcomer of the victim's tenant opens sessions and Cap'n Proto
// connections meanwhile, and waits for them at most twice as long as when nobody attacks.
package attack
