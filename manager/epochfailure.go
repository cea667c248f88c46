package manager

// epochFailure carries the reason why an epoch has to end although its driver lives.
type epochFailure struct{ cause chan error }

func newEpochFailure() *epochFailure { return &epochFailure{cause: make(chan error, 1)} }

// report ends the epoch. Only the first reason counts.
func (f *epochFailure) report(cause error) {
	select {
	case f.cause <- cause:
	default:
	}
}

// wedgedError is why a function gets no further driver: its state, or the memory that it can
// reach, is not known.
type wedgedError struct{ cause error }

func (w *wedgedError) Error() string { return w.cause.Error() }
func (w *wedgedError) Unwrap() error { return w.cause }
