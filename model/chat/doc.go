// Package chat makes a prompt of a conversation.
//
// A model's file has its way of doing so as a Jinja program. No program of a file is run
// here: New recognises the family of models that a template is of, by what it writes,
// and does what that family's templates do; a conversation for a template of no known
// family, or of none, is written plainly:
//
//	User: …
//	Assistant:
//
// Of a family's template the frame is kept: roles, turns, and where text begins and
// ends. What a template adds of its own, like a system message where the conversation
// has none, today's date, or tools, is left out.
//
// # A conversation is data
//
// The frame may hold control tokens; the messages may not: they are encoded as text,
// however they are spelled, so no message ends its own turn or begins another's. Where a
// family's frame is text itself ("[INST]" of llama2, "<|user|>" of zephyr, all of the
// plain one), a message can hold the same text, as it can for the model's own template;
// what ends an answer of those families is a token, and stays out of reach.
package chat
