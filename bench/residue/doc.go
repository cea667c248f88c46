// Package residue looks for what one tenant leaves to the next. Its tests fill everything
// that a tenant can write with a pattern, end that tenant in every way that there is, and
// scan everything that another tenant gets afterwards. They run the built commands, so
// that every process is one.
package residue
