// Package archtest holds the tree to its architecture: who may import whom,
// where unsafe and raw system calls may stand. It has tests only. The rules are
// those of docs/architecture.md; a change here is a change of architecture.
package archtest
