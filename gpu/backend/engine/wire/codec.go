package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"capgpu/program"
)

// writer appends little-endian numbers.
type writer struct{ b []byte }

func (w *writer) u8(v uint8)   { w.b = append(w.b, v) }
func (w *writer) u32(v uint32) { w.b = binary.LittleEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, v) }

func (w *writer) flag(v bool) {
	if v {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

func (w *writer) dim(d program.Dim3) {
	w.u32(d.X)
	w.u32(d.Y)
	w.u32(d.Z)
}

func (w *writer) bytes(b []byte) {
	w.u32(uint32(len(b)))
	w.b = append(w.b, b...)
}

func (w *writer) device(d *Device) {
	b, err := json.Marshal(d)
	if err != nil { // numbers and strings always can be
		panic(fmt.Sprintf("wire: %v", err))
	}
	w.bytes(b)
}

// reader takes numbers off the front. After the first that is wrong all are 0.
type reader struct {
	b    []byte
	what string
	err  error
}

func (r *reader) bad(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("parse an %s: "+format, append([]any{r.what}, args...)...)
	}
}

func (r *reader) take(field string, n int) []byte {
	if r.err != nil || n > len(r.b) {
		r.bad("%s: it ends before", field)
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8(field string) uint8 {
	if b := r.take(field, 1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u32(field string) uint32 {
	if b := r.take(field, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(field string) uint64 {
	if b := r.take(field, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) flag(field string) bool {
	v := r.u8(field)
	if v > 1 {
		r.bad("%s is %d, not 0 or 1", field, v)
	}
	return v == 1
}

func (r *reader) atMost(field string, most uint32) uint32 {
	v := r.u32(field)
	if v > most {
		r.bad("%s is %d, more than %d", field, v, most)
		return 0
	}
	return v
}

func (r *reader) dim(field string, most uint32) (d program.Dim3) {
	for _, to := range [...]*uint32{&d.X, &d.Y, &d.Z} {
		if *to = r.atMost(field, most); *to == 0 {
			r.bad("%s is 0 in one dimension", field)
		}
	}
	return d
}

func (r *reader) duration(field string) time.Duration {
	v := r.u64(field)
	if v > math.MaxInt64 {
		r.bad("%s is %d", field, v)
		return 0
	}
	return time.Duration(v)
}

// bytes is a copy; nil if there are none.
func (r *reader) bytes(field string, most uint32) []byte {
	return append([]byte(nil), r.take(field, int(r.atMost(field, most)))...)
}

// maxDeviceBytes bounds a Device as JSON, in which a byte of a name may take six.
const maxDeviceBytes = 16 << 10

func (r *reader) device() *Device {
	d := new(Device)
	b := r.bytes("device", maxDeviceBytes)
	if r.err != nil {
		return nil
	}
	if err := json.Unmarshal(b, d); err != nil {
		r.bad("device: %v", err)
		return nil
	}
	if err := d.Check(); err != nil {
		r.bad("%v", err)
		return nil
	}
	return d
}

func (r *reader) end() error {
	if len(r.b) > 0 {
		r.bad("%d bytes behind its end", len(r.b))
	}
	return r.err
}
