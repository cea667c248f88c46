package openai

import (
	"cmp"
	"log/slog"
	"time"
)

// Options are the bounds of a handler. Zero values take the defaults.
type Options struct {
	// Token is the client's "Authorization: Bearer …"; "" requires none.
	Token string
	Log   *slog.Logger // failures, and at level debug requests; never texts

	MaxBodyBytes int64 // of a request: 4 MiB
	MaxRequests  int   // at a time; others must try later: 256
	MaxChoices   int   // answers of one request, prompts times n: 32
	MaxMessages  int   // of a conversation: 1,024
	MaxInputs    int   // texts of one request for embeddings: 256

	// Bytes of memory for answers that are not streamed, until they are written:
	// for one, 64 MiB, which is about 8,000 tokens with 20 alternatives each, and
	// for all, 256 MiB.
	MaxAnswerBytes, MaxGatheredBytes int64

	BodyTimeout  time.Duration // pause of a body, besides minBodyRate: 5 s
	WriteTimeout time.Duration // for a client to read each part that it is sent: 30 s
	KeepAlive    time.Duration // a silent stream sends a comment after this time: 10 s
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
