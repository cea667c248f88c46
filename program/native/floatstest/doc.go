// Package floatstest reads and sets the float mode of the current thread, for tests of
// package native.
package floatstest
