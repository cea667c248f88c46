package native

// A client decides where much of a body's memory is: the pages of a cache, rows of
// a table, the stride of results. Each run of words may then be in a page of its
// own, and none of these pages may be resident yet.

const (
	pageNanos = 256 // of a page that lies anywhere; one that is made takes 2000 to 4500
	fewPages  = 8   // that a call may touch anyhow
)

// scattered is the additional time of an access if the words are in this many runs,
// anywhere in this many words of memory, and not consecutive. Half-full pages are
// usual: a page of a cache, for example, may be half as large.
func scattered(runs, words, memory uint64) uint64 {
	touched, usual := min(runs, pagesOf(memory)), 2*words/pageWords+fewPages
	if touched <= usual {
		return 0
	}
	return (touched - usual) * pageNanos
}

// pagesOfRows bounds the pages of rows that begin stride words after each other,
// wherever the first begins.
func pagesOfRows(rows, words, stride uint64) uint64 {
	if rows == 0 || words == 0 {
		return 0
	}
	return min(rows*pagesOf(words), pagesOf((rows-1)*stride+words))
}
