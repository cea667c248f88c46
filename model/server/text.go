package server

import (
	"strings"

	"capgpu/model/tokenizer"
)

// answerText turns tokens into the text of an answer. It holds back a possible
// start of a stop string until it is known not to be one.
type answerText struct {
	decoder *tokenizer.Decoder
	stop    []string
	held    string // decoded text that is a prefix of a stop string
}

// add takes a token and returns the text that is now certain. stopped reports that
// a stop string came; the text then ends before it.
func (a *answerText) add(id int32) (text string, stopped bool) {
	return a.take(a.decoder.Add(id))
}

// rest returns the held text when no more tokens come.
func (a *answerText) rest() (text string, stopped bool) {
	text, stopped = a.take(a.decoder.Flush())
	if !stopped {
		text += a.held
	}
	a.held = ""
	return text, stopped
}

func (a *answerText) take(more string) (text string, stopped bool) {
	if len(a.stop) == 0 {
		return more, false
	}

	all := a.held + more
	first := -1
	for _, s := range a.stop {
		if i := strings.Index(all, s); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}

	if first >= 0 {
		a.held = ""
		return all[:first], true
	}

	keep := 0
	for _, s := range a.stop {
		keep = max(keep, overlap(all, s))
	}

	a.held = all[len(all)-keep:]
	return all[:len(all)-keep], false
}

// overlap is the length of the longest end of text with which s begins, s itself
// excepted.
func overlap(text, s string) int {
	for n := min(len(text), len(s)-1); n > 0; n-- {
		if strings.HasSuffix(text, s[:n]) {
			return n
		}
	}
	return 0
}
