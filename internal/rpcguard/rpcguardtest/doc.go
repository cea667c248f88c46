// Package rpcguardtest attacks services that stand behind rpcguard.Serve: a
// generator of conversations that mean something, and are then damaged, and a
// harness that plays them to a service in a process of its own.
//
// The generator knows the service's schema. It opens every kind of object, calls the methods
// of each capability on promises of earlier calls, and puts arguments of the right types into
// them, mostly. So the messages get through the RPC layer and down to the service. Every
// other conversation is then damaged: bits, pointers, whole words, order, length.
//
// The process is the test binary, started again for the same test: a crash is seen from
// outside, and the test's own clean-ups and leakcheck find resources that a service leaves
// behind.
//
// It is for tests only and panics on impossible states. It does not import rpcguard.
package rpcguardtest
