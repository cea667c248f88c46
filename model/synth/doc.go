// Package synth makes up models: seeded weights in the shape of a real one, and a small
// vocabulary that is complete, so that any text comes back as it went in.
//
// The same options give the same bytes on every machine: the weights are sums of integers
// times one float32. Their scales are chosen so that logits differ and that the most
// likely next token hangs on all of the text before: what such a model writes is
// nonsense, but varied, and wrong arithmetic anywhere changes it. See New.
package synth
