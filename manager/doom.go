package manager

// doom is why an epoch has to end although its driver lives, once somebody has said
// so.
type doom struct{ said chan error }

func newDoom() *doom { return &doom{said: make(chan error, 1)} }

// say ends the epoch. Only the first reason counts.
func (d *doom) say(cause error) {
	select {
	case d.said <- cause:
	default:
	}
}

// wreck is why a function gets no driver any more: what it does, or what it can
// reach, is not known.
type wreck struct{ cause error }

func (w *wreck) Error() string { return w.cause.Error() }
func (w *wreck) Unwrap() error { return w.cause }
