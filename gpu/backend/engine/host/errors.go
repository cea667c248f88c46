package host

import "errors"

// ErrLost is the error of a device that is of no use to this process any more: the library
// said that it is lost, or it did what it cannot do.
var ErrLost = errors.New("the device is lost")

// ErrClosed is what Wait returns from a device that is closed.
var ErrClosed = errors.New("the device is closed")
