// Package chat makes a prompt of a conversation.
//
// A model's file describes this by a Jinja program. This package runs no program of
// a file. New recognises the template's family by its text, and writes
// conversations as that family does. For an unknown family, or without a template,
// it writes a conversation plainly:
//
//	User: …
//	Assistant:
//
// It keeps the frame of a family's template: roles, turns, and the beginning and
// end of text. It leaves out a template's own additions, such as a system message
// that the conversation lacks, today's date, or tools.
//
// # A conversation is data
//
// The frame may hold control tokens; the messages may not. They are encoded as
// text, however they are spelled, so no message ends its own turn or begins
// another's. Where a family's frame is text itself ("[INST]" of llama2, "<|user|>"
// of zephyr, all of the plain one), a message can hold the same text, as it can for
// the model's own template; what ends an answer of those families is a token, and
// stays out of reach.
package chat
