package server

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The line against plain lists: one for each tag, and the tags in turn.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l line
		of := map[string][]*request{}
		var turns []string
		var all []*request
		drop := func(r *request) {
			of[r.tag] = slices.DeleteFunc(of[r.tag], func(x *request) bool { return x == r })
			all = slices.DeleteFunc(all, func(x *request) bool { return x == r })
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				r := &request{tag: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tag")}
				l.push(r)
				if len(of[r.tag]) == 0 {
					turns = append(slices.DeleteFunc(turns, func(s string) bool { return s == r.tag }), r.tag)
				}
				of[r.tag] = append(of[r.tag], r)
				all = append(all, r)
			},
			"pop": func(t *rapid.T) {
				places := map[string]int{}
				for _, tag := range []string{"a", "b", "c"} {
					places[tag] = rapid.IntRange(0, 2).Draw(t, tag)
				}
				got := l.next(func(tag string) int { return places[tag] })
				var want *request
				for n := 3; n >= 0; n-- { // the fewest places win, and of these the first in turn
					for _, tag := range slices.Backward(turns) {
						if len(of[tag]) > 0 && places[tag] == n {
							want = of[tag][0]
						}
					}
				}
				require.Same(t, want, got)
				if want == nil {
					t.Skip()
				}
				l.pop(got)
				turns = append(slices.DeleteFunc(turns, func(s string) bool { return s == want.tag }), want.tag)
				drop(want)
			},
			"remove": func(t *rapid.T) {
				if len(all) == 0 {
					t.Skip()
				}
				r := rapid.SampledFrom(all).Draw(t, "r")
				l.remove(r)
				l.remove(r)
				drop(r)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(all), l.count)
				require.ElementsMatch(t, all, l.all())
			},
		})
	})
}
