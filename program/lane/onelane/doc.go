// Package onelane runs programs the slow, obvious way: one lane after the other,
// one instruction at a time, straight from the module, with a map of values. It
// shares nothing with the lane engine but the parser.
//
// Lanes meet at barriers only. A program must not race, nor use the results of
// atomics whose order matters; subgroup operations are not known here.
package onelane
