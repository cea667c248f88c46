// Package modeltest is what tests of models share: a slow, obvious model to compare with,
// and the real one that lies beside the repository.
package modeltest
