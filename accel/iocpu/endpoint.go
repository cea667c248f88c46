package iocpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"capgpu/client"
	"capgpu/gpuerr"
)

// MaxLine is the longest request, in bytes.
const MaxLine = 1 << 20

// maxRequests bounds the requests of an endpoint: it remembers each.
const maxRequests = 1 << 20

// Endpoint is the IO_CPU of a machine, for one connection.
type Endpoint struct {
	conn     *client.Conn
	topology Topology
	buffers  fs.FS

	mu   sync.Mutex // held for a request
	pes  [][]*pe    // by sip, in the order of cube and PE
	seen map[[2]string]struct{}
}

// New makes an endpoint with all its PEs: a tenant that may not have as many, or as much memory, is
// refused here (gpuerr.Quota). buffers are the files that host_buffer_ref names; nil: none.
func New(ctx context.Context, conn *client.Conn, t Topology, buffers fs.FS) (*Endpoint, error) {
	e := &Endpoint{conn: conn, topology: t, buffers: buffers, seen: map[[2]string]struct{}{}}
	for _, sip := range t.Sips {
		e.pes = append(e.pes, nil)
		for range sip.Cubes * sip.PEsOfCube {
			p, err := e.newPE(ctx, sip.Device)
			if err != nil {
				return nil, errors.Join(err, e.Close())
			}
			e.pes[len(e.pes)-1] = append(e.pes[len(e.pes)-1], p)
		}
	}
	return e, nil
}

// Close ends the PEs and all that is on them.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var first error
	for _, sip := range e.pes {
		for _, p := range sip {
			if err := p.close(context.Background()); first == nil {
				first = err
			}
		}
	}
	e.pes = nil
	return first
}

// answer is one line back.
type answer struct {
	Correlation string     `json:"correlation_id"`
	ID          string     `json:"request_id"`
	Completion  completion `json:"completion"`
	Latency     *uint64    `json:"latency_ns"` // null for what was refused: it was not routed
	Hops        []Hop      `json:"hops"`
	PEs         []Ran      `json:"pes,omitempty"`
	Digest      string     `json:"sha256,omitempty"`
}

type completion struct {
	OK      bool    `json:"ok"`
	Code    *string `json:"error_code"`
	Message *string `json:"error_message"`
}

// Handle answers one line, without its end. The same lines give the same answers.
func (e *Endpoint) Handle(ctx context.Context, line []byte) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	var a answer
	err := e.handle(ctx, line, &a)
	if a.Completion.OK = err == nil; err != nil {
		code, message := codeOf(err), messageOf(err)
		a.Completion.Code, a.Completion.Message = &code, &message
	}
	if a.Hops == nil {
		a.Hops = []Hop{}
	} else {
		a.Latency = &a.Hops[len(a.Hops)-1].At
	}
	text, _ := json.Marshal(a) // strings and numbers only
	return text
}

// messageOf is the text of an error; what was refused begins with the path of its field.
func messageOf(err error) string {
	var known *gpuerr.Error
	if e, ok := err.(*gpuerr.Error); ok && e.Code == gpuerr.Invalid {
		known = e
		return known.Msg
	}
	return err.Error()
}

func (e *Endpoint) handle(ctx context.Context, line []byte, a *answer) error {
	if len(line) > MaxLine {
		return gpuerr.New(gpuerr.Invalid, "line: more than %d bytes", MaxLine)
	}
	r, err := Parse(line)
	a.Correlation, a.ID = r.Correlation, r.ID
	key := [2]string{r.Correlation, r.ID}
	if _, twice := e.seen[key]; twice && err == nil {
		return gpuerr.New(gpuerr.Invalid, "request_id: %.80q was used before with this correlation_id", r.ID)
	}
	if len(e.seen) >= maxRequests {
		return gpuerr.New(gpuerr.Quota, "an endpoint takes %d requests", maxRequests)
	}
	if err != nil {
		return err
	}
	e.seen[key] = struct{}{}

	digits, ok := strings.CutPrefix(r.Target, "sip:")
	target, bad := strconv.ParseUint(digits, 10, 32)
	if !ok || bad != nil || digits != strconv.FormatUint(target, 10) || target >= uint64(len(e.pes)) {
		return gpuerr.New(gpuerr.NoDevice, "target_device: there is no %.80q", r.Target)
	}
	switch {
	case r.Write != nil:
		a.Hops, err = e.write(target, r.Write)
	case r.Read != nil:
		a.Hops, a.Digest, err = e.read(target, r.Read)
	default:
		var failed error
		if a.Hops, a.PEs, failed, err = e.launch(ctx, target, r.Launch); err == nil {
			err = failed
		}
	}
	return err
}

// Serve answers lines until r ends. A line that is too long is answered as refused.
func (e *Endpoint) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(lines)
		if err == io.EOF && len(line) == 0 {
			return nil
		} else if err != nil && err != io.EOF {
			return err
		}
		if _, failed := w.Write(append(e.Handle(ctx, line), '\n')); failed != nil {
			return failed
		}
		if err == io.EOF {
			return nil
		}
	}
}

// readLine reads a line without its end; of one that is too long it keeps as much as shows that.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece[:min(len(piece), MaxLine+2-len(line))]...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if n := len(line); err == nil && n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		return line, err
	}
}
