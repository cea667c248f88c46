// Package spirvtest makes SPIR-V for tests: whole modules by Builder, and broken
// ones by Mutate.
package spirvtest
