package tokenizer

import "regexp"

type splitter struct{ re *regexp.Regexp }

func (t *Tokenizer) setSplits() error                      { return nil }
func (t *Tokenizer) split(text string, yield func(string)) { yield(text) }
