package lm

import "context"

// Asker is who asks. What requests share is divided among peers first, and a peer's part
// among the users that it names.
type Asker struct {
	Peer string // whom nobody can have many of: see package peers
	User string // as the peer calls it, or its connection
}

type askerKey struct{}

// WithAsker is ctx for calls of a Model by who asks. Calls without are of the zero Asker.
func WithAsker(ctx context.Context, who Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, who)
}

// AskerOf is who asks.
func AskerOf(ctx context.Context) Asker {
	who, _ := ctx.Value(askerKey{}).(Asker)
	return who
}

// As is m with all calls by who asks.
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
