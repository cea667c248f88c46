// Package modeltest is shared by the tests of models: a slow, obvious model to
// compare with, and access to the real one beside the repository.
package modeltest
