// Package verify admits programs: it decides whether a module is in the profile
// (docs/program-profile.md), and finds out what the engines and the core have to
// know about it.
package verify
