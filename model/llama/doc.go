// Package llama runs models of the Llama architecture on a device that it knows only by
// a client.Session: the tensors lie in the session's buffers, and every operation is a
// program launched there.
//
//	model.File ─► Blueprint: buffers, and the launches of a pass ─► Load: the same in a session
//	rows ─► Step: small mapped buffers, then one replay ─► Logits, in mapped memory
//	a token ─► Greedy: replays ahead of the reader, each begins where the last ended
//
// A pass takes a batch of rows, each a token at a position of a sequence; rows of one
// sequence may follow each other (a prompt) and stand beside those of others. What a row
// comes to does not depend on the rows beside it, to the bit, as far as the programs
// hold to that: those of package native do.
//
// # What is launched
//
//	embed_*                                     x  = the rows of the tokens
//	for each layer:
//	  rmsnorm_f32                               n  = norm(x)
//	  linear_*                                  qkv = W·n, in one launch where the three have one type
//	  rope_cache_f32                            q is turned, k and v go to the cache
//	  attention_cache_f32                       a
//	  linear_*, add                             x += Wo·a
//	  rmsnorm_f32, linear_*, swiglu_rows_f32, linear_*, add   x += Wd·(silu(Wg·n)·Wu·n)
//	and for the rows that want logits:
//	  rmsnorm_f32, linear_*                     logits
//	in Greedy also:
//	  next_token_f32                            the token and the position of the next pass
//
// These are recorded as lists when the model is loaded, for a few sizes of a batch; a
// batch in between is filled up with rows of no sequence, which the programs pass over.
// A pass is one or two replays without patches: what differs (tokens, positions,
// sequences, the table of pages) lies in small buffers that are mapped here. Greedy's
// passes follow each other on the device, several in a list where they are short.
//
// # The cache
//
// Keys and values lie in pages of some positions each. A Sequence has a row in the table
// of pages; Reserve gives it pages before they are used, and Close gives them back. A
// row is refused before it could read a position that its sequence has not written: a
// page that was another's shows nothing of it.
//
// # Who may be trusted
//
// The file may be anybody's: its shapes are checked here once more, and its bytes are
// copied under a guard. The service is trusted as package client says: a token that
// comes from the device is compared with the vocabulary before it is used.
//
// # Ends
//
// After a pass that did not end ok, or was refused, the Model is of no use any more and
// every method says why; close it, and what it had is free. A pass that was cancelled by
// its context is not such an end.
//
// Step, Greedy, Embed, Logits and Close are for one goroutine at a time. Sequences may be
// made, reserved for and closed from any. Locks: Model.pool.mu, held for bookkeeping only.
package llama
