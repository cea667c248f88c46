// Package residue tests whether one tenant leaves data to the next. Its tests fill
// everything that a tenant can write with a pattern, end that tenant in every
// possible way, and scan everything that another tenant gets afterwards. They run
// the built commands, each in its own process.
package residue
