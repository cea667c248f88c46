package openai

import (
	"errors"
	"io"
	"net/http"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
)

// smallBytes is what a body has of memory without asking.
const smallBytes = 64 << 10

// readBody reads a body. One that is not small takes what it says to become, or may, of the
// memory for all such, until release, which may be called more than once, and always.
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
	// From now on the server reads only to see whether the client is there, however long
	// that is. (net/http does this as well, and does not promise to.)
	_ = from.rc.SetReadDeadline(time.Time{})
	return body, release, nil
}

// minBodyRate is how many bytes of a body come in a second, at least.
const minBodyRate = 64 << 10

// pacedBody is a body that ends when nothing comes for a while, and when it comes too slowly
// on the whole.
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
	_ = b.rc.SetReadDeadline(until) // a writer of a test has none
	n, err := b.from.Read(p)
	b.came += int64(n)
	return n, err
}
