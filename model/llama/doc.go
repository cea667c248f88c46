// Package llama runs models of Llama's kind on a device that it knows
// only through a client.Session. model.Arch names the families; a family is a row of
// traits over this one pass. The tensors are in the session's buffers, and
// every operation is a program launched there.
//
//	model.File ─► Blueprint: buffers, and the launches of a pass ─► Load: the same in a session
//	rows ─► Step: small mapped buffers, then one replay ─► Logits, in mapped memory
//	a token ─► Greedy: replays ahead of the reader, each begins where the last ended
//
// A pass takes a batch of rows, each a token at a position of a sequence; Rows of
// one sequence may follow each other (a prompt) and may share the batch with rows
// of other sequences. The result of a row does not depend on the other rows, to the
// bit, as far as the programs guarantee that; those of package native do.
//
// # What is launched
//
//	embed_*                                     x  = the rows of the tokens (Gemma: saxpy_f32, times √dim)
//	for each layer:
//	  rmsnorm_f32                               n  = norm(x)
//	  linear_*                                  qkv = W·n, in one launch where the three have one type
//	  (linear_f32)                              qkv += biases, a matrix of one column
//	  (head_norm_f32)                           the heads of q and k are normalised
//	  rope_cache_f32                            q is turned, k and v go to the cache
//	  attention_cache_f32                       a
//	  linear_*, add                             x += Wo·a; where that has a norm of its own: linear_*, rmsnorm_f32, saxpy_f32
//	  rmsnorm_f32, linear_*, swiglu_rows_f32 (Gemma: geglu_rows_f32), linear_*, add   x += Wd·(silu(Wg·n)·Wu·n)
//	and for the rows that want logits:
//	  rmsnorm_f32, linear_*, (softcap_f32)      logits
//	in Greedy also:
//	  next_token_f32                            the token and the position of the next pass
//
// These are recorded as lists when the model is loaded, for a few sizes of a batch;
// a batch in between is padded with rows of no sequence, which the programs skip. A
// pass is one or two replays without patches: everything that varies (tokens,
// positions, sequences, the table of pages) is in small buffers that are mapped
// here. Greedy's passes follow each other on the device, several in a list where
// they are short.
//
// # The cache
//
// Keys and values are in pages of several positions each. A Sequence has a row in
// the table of pages; Reserve gives it pages before they are used, and Close gives
// them back. A row is refused before it could read a position that its sequence has
// not written: a page of an earlier owner so reveals nothing.
//
// # Trust
//
// The file is not trusted: this package checks its shapes once more, and copies its
// bytes under a guard. The service is trusted as package client says: a token that
// comes from the device is compared with the vocabulary before it is used.
//
// # Ends
//
// After a pass that failed or was refused, the Model is unusable and every method
// returns why; Close frees its resources. A pass that its context cancelled is no
// such failure.
//
// Step, Greedy, Embed, Logits and Close are for one goroutine at a time. Sequences may be
// made, reserved for and closed from any. Locks: Model.pool.mu, held for bookkeeping only.
package llama
