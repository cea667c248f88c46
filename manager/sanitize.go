package manager

import (
	"context"
	"errors"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/sanitize"
)

// All words of a driver pass through sanitize.Text before anybody sees them: the last line
// that it said, the text of its refusals (here), the name of its backend (clipped).

// call asks the driver; what it says to refuse is plain.
func (l *driverLink) call(ctx context.Context, t control.MsgType, body []byte, fds []int) (*control.Message, error) {
	m, err := l.caller.Call(ctx, t, body, fds)
	return m, sanitizeError(err)
}

// sanitizeError keeps what an error is and makes what it says plain.
func sanitizeError(err error) error {
	var e *gpuerr.Error
	if errors.As(err, &e) && sanitize.Text(e.Msg) != e.Msg {
		p := *e
		p.Msg = sanitize.Text(e.Msg)
		return &p
	}
	return err
}
