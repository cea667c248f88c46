package openai

import (
	"cmp"
	"log/slog"
	"time"
)

// Options are the bounds of a handler. Zero values take the defaults.
type Options struct {
	// Token is what clients show as "Authorization: Bearer …"; "" asks for none.
	Token string
	Log   *slog.Logger // of failures, and at level debug of requests; never of texts

	MaxBodyBytes int64 // of a request: 4 MiB
	MaxRequests  int   // at a time; others are told to try later: 256
	MaxChoices   int   // answers of one request, prompts times n: 32
	MaxMessages  int   // of a conversation: 1,024
	MaxInputs    int   // texts of one request for embeddings: 256

	// Bytes of memory of answers that are not streamed until they are written: of one,
	// 64 MiB, which are about 8,000 tokens with 20 alternatives each, and of all, 256 MiB.
	MaxAnswerBytes, MaxGatheredBytes int64

	BodyTimeout  time.Duration // without a byte of a request, and more as it comes (minBodyRate): 5 s
	WriteTimeout time.Duration // for a client to take what it is sent, each time: 30 s
	KeepAlive    time.Duration // of a stream without news, a comment is sent: 10 s
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 4<<20)
	o.MaxRequests = cmp.Or(o.MaxRequests, 256)
	o.MaxChoices = cmp.Or(o.MaxChoices, 32)
	o.MaxMessages = cmp.Or(o.MaxMessages, 1024)
	o.MaxInputs = cmp.Or(o.MaxInputs, 256)
	o.MaxAnswerBytes = cmp.Or(o.MaxAnswerBytes, 64<<20)
	o.MaxGatheredBytes = cmp.Or(o.MaxGatheredBytes, 256<<20)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 5*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 10*time.Second)
	return o
}

// Bounds of single fields, beside those of package lm.
const (
	maxBias      = 1024 // tokens of logit_bias
	maxNameBytes = 256  // of user and model
	maxMembers   = 256  // of a JSON object
	maxLarge     = 16   // bodies of the largest size that are being read, at a time
)
