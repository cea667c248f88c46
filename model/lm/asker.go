package lm

import "context"

// Asker identifies the user of a request. Shared resources are divided among peers
// first, and a peer's part among the users that it names.
type Asker struct {
	Peer string // an identity that costs something to multiply: see package peers
	User string // the peer's name for it, or its connection
}

type askerKey struct{}

// WithAsker returns ctx for calls of a Model by this asker. Calls without belong to
// the zero Asker.
func WithAsker(ctx context.Context, who Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, who)
}

// AskerOf returns the asker.
func AskerOf(ctx context.Context) Asker {
	who, _ := ctx.Value(askerKey{}).(Asker)
	return who
}

// As returns m with all calls made by this asker.
func As(m Model, who Asker) Model { return as{m, who} }

type as struct {
	Model
	who Asker
}

func (m as) Generate(ctx context.Context, r Request) (Stream, error) {
	return m.Model.Generate(WithAsker(ctx, m.who), r)
}

func (m as) Embed(ctx context.Context, texts []string) ([][]float32, Usage, error) {
	return m.Model.Embed(WithAsker(ctx, m.who), texts)
}

func (m as) Tokenize(ctx context.Context, prompt string) ([]int32, error) {
	return m.Model.Tokenize(WithAsker(ctx, m.who), prompt)
}

func (m as) Chat(ctx context.Context, messages []Message) ([]int32, error) {
	return m.Model.Chat(WithAsker(ctx, m.who), messages)
}
