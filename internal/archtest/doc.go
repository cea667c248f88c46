// Package archtest holds the tree to its architecture and style: which package may
// import which, where unsafe and raw system calls may stand, how comments are worded.
// It has tests only. The rules are those of docs/architecture.md; a change here is a
// change of architecture.
package archtest
