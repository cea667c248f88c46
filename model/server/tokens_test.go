package server

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/tokenizer"
)

// A text that can never fit is refused without a place. One that might fit waits
// for a place as long as its context allows, and short texts do not wait for long
// ones.
func TestTextPlaces(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		for range longPlaces {
			done, err := r.s.texts.take(context.Background(), longText+1)
			require.NoError(t, err)
			defer done()
		}

		long := strings.Repeat("a b", 1<<20)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := r.s.Generate(ctx, lm.Request{Prompt: long})
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, "prompt: more than 96 tokens")
		_, _, err = r.s.Embed(ctx, []string{"a", long})
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, "texts: number 1: more than 96 tokens")

		// With this vocabulary a text's length says nothing about its tokens.
		r.s.words, err = tokenizer.New(tokenizer.Spec{Scheme: tokenizer.SentencePiece, BOS: -1, EOS: -1, EOT: -1, Unk: 0,
			Pieces: []tokenizer.Piece{{Text: []byte("?"), Kind: tokenizer.Unknown}, {Text: []byte("a")}}})
		require.NoError(t, err)
		ended := make(chan error, 4)
		waiting := []func() error{
			func() error { _, err := r.s.Generate(ctx, lm.Request{Prompt: long}); return err },
			func() error { _, _, err := r.s.Embed(ctx, []string{long}); return err },
			func() error { _, err := r.s.Tokenize(ctx, long); return err },
			func() error { _, err := r.s.Chat(ctx, []lm.Message{{Role: "user", Content: long}}); return err },
		}

		for _, f := range waiting {
			go func() { ended <- f() }()
		}

		synctest.Wait()
		require.Empty(t, ended)
		tokens, err := r.s.Tokenize(ctx, "aa b")
		require.NoError(t, err)
		require.Equal(t, []int32{1, 1, 0}, tokens)
		cancel()
		for range waiting {
			require.ErrorIs(t, <-ended, context.Canceled)
		}

		_, err = r.s.Chat(context.Background(), []lm.Message{{Content: long}, {Content: long}})
		require.ErrorContains(t, err, "messages: more than 4194304 bytes")
	})
}

// The texts of one peer do not all go before another's.
func TestTextsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := desk{places: 1}
		done, err := d.take(by("first", ""))
		require.NoError(t, err)
		order := make(chan string, 9)
		for _, who := range []lm.Asker{{Peer: "many", User: "1"}, {Peer: "many", User: "2"}, {Peer: "many", User: "3"}, {Peer: "few"}, {Peer: "few"}} {
			go func() {
				done, err := d.take(by(who.Peer, who.User))
				if err != nil {
					order <- err.Error()
					return
				}
				order <- who.Peer
				time.Sleep(time.Second)
				done()
			}()
			synctest.Wait()
		}

		gone, cancel := context.WithCancel(by("many", "0"))
		cancel()
		_, err = d.take(gone)
		require.ErrorIs(t, err, context.Canceled)
		done()
		var got []string
		for range 5 {
			got = append(got, <-order)
		}

		require.Equal(t, []string{"many", "few", "many", "few", "many"}, got)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, d.shares.all.use)
		require.Zero(t, d.shares.all.active)
	})
}
