package manager

import (
	"context"
	"errors"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/sanitize"
)

// Text from a driver passes through sanitize.Text before it is shown or logged: its last line
// of output, its refusals (here), the name of its backend (clipped).

// call sends a request to the driver. The text of a refusal is sanitized.
func (l *driverLink) call(ctx context.Context, t control.MsgType, body []byte, fds []int) (*control.Message, error) {
	m, err := l.caller.Call(ctx, t, body, fds)
	return m, sanitizeError(err)
}

// sanitizeError keeps the code of an error and sanitizes its text.
func sanitizeError(err error) error {
	var e *gpuerr.Error
	if errors.As(err, &e) && sanitize.Text(e.Msg) != e.Msg {
		p := *e
		p.Msg = sanitize.Text(e.Msg)
		return &p
	}
	return err
}
