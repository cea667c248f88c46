// Package schema is the capability contract in Go: capos.capnp and what
// capnpc-go makes of it.
//
// The generated file is committed so that building needs no Cap'n Proto
// compiler. After a change of capos.capnp run `make generate`; the tests fail
// while the two differ, and while the wire numbers differ from the golden file.
// Methods, fields and enumerants are added at the end and never renumbered.
package schema

//go:generate ./generate.sh .
