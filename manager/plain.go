package manager

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"capgpu/control"
	"capgpu/gpuerr"
)

// plain makes a driver's words fit to be shown: what is no printable character (an
// escape sequence for a terminal, a new line, what reverses the direction of
// reading) is written as Go would write it in a string. All words of a driver pass
// through it before anybody sees them: the last line that it said, the text of its
// refusals, the name of its backend (clipped).
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// call asks the driver; what it says to refuse is plain.
func (l *driverLink) call(ctx context.Context, t control.MsgType, body []byte, fds []int) (*control.Message, error) {
	m, err := l.caller.Call(ctx, t, body, fds)
	return m, plainError(err)
}

// plainError keeps what an error is and makes what it says plain.
func plainError(err error) error {
	var e *gpuerr.Error
	if errors.As(err, &e) && plain(e.Msg) != e.Msg {
		p := *e
		p.Msg = plain(e.Msg)
		return &p
	}
	return err
}
