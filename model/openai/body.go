package openai

import (
	"errors"
	"io"
	"net/http"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// smallBytes is the size of a body that needs no place.
const smallBytes = 64 << 10

// readBody reads a body. A body that is not small takes its announced, or largest
// possible, size from the shared memory for such bodies, until release. release
// must always be called, and may be called more than once.
func (a *api) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	defer awaits(r.Context())()
	release = func() {}
	from := &pacedBody{from: http.MaxBytesReader(w, r.Body, a.o.MaxBodyBytes), rc: http.NewResponseController(w), began: time.Now(), stall: a.o.BodyTimeout}
	body, err = io.ReadAll(io.LimitReader(from, smallBytes))
	if len(body) == smallBytes && err == nil {
		size := r.ContentLength
		if size < 0 || size > a.o.MaxBodyBytes {
			size = a.o.MaxBodyBytes
		}
		who := lm.AskerOf(r.Context())
		if !a.bodies.Take(size, who.Peer) {
			return nil, release, gpuerr.New(gpuerr.Busy, "large requests that are being read have %d of %d bytes, and your share of them is taken; try again", a.bodies.Held(), a.bodies.Most())
		}
		release = func() {
			a.bodies.Give(size, who.Peer)
			size = 0
		}
		var rest []byte
		rest, err = io.ReadAll(from)
		body = append(body, rest...)
	}

	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		p := invalid("", "the body is larger than %d bytes", a.o.MaxBodyBytes)
		p.status = http.StatusRequestEntityTooLarge
		return nil, release, p
	case err != nil:
		p := invalid("", "the body did not come: it may pause for %v, and after that comes with %d bytes in a second at least", a.o.BodyTimeout, minBodyRate)
		p.status = http.StatusRequestTimeout
		return nil, release, p
	}

	// From now on the server reads only to notice when the client leaves, however
	// long that takes. (net/http does this as well, but does not promise it.)
	_ = from.rc.SetReadDeadline(time.Time{})
	return body, release, nil
}

// minBodyRate is the lowest rate of a body, in bytes a second.
const minBodyRate = 64 << 10

// pacedBody is a body that ends when it pauses too long, and when it is too slow on
// the whole.
type pacedBody struct {
	from  io.Reader
	rc    *http.ResponseController
	began time.Time
	stall time.Duration
	came  int64
}

func (b *pacedBody) Read(p []byte) (int, error) {
	until := b.began.Add(b.stall + time.Duration(b.came)*time.Second/minBodyRate)
	if stalled := time.Now().Add(b.stall); stalled.Before(until) {
		until = stalled
	}
	_ = b.rc.SetReadDeadline(until) // a test's writer has no deadline
	n, err := b.from.Read(p)
	b.came += int64(n)
	return n, err
}
