// Package llm runs the same language model in three ways, for figures that compare them:
//
//	Served     through the service, as a model server does: package llama on a session
//	InProcess  the same launches as plain calls of the native kernels, in one thread, without
//	           a service and without checks
//	Plain      a straightforward program in C, compiled here (plain/plain.c)
//
// All begin a text with the same token and take the most likely one each time, so
// that their texts can be compared: Served and InProcess to the bit.
package llm
