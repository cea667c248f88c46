// Package synth generates models: seeded weights in the shape of a real one, and a
// small vocabulary that is complete, so that every text survives a round trip.
//
// The same options give the same bytes on every machine: the weights are sums of
// integers times one float32. Their scales are chosen so that logits differ and
// that the most likely next token depends on the whole text before. Such a model
// writes nonsense, but varied nonsense, and wrong arithmetic anywhere changes it.
// See New.
package synth
