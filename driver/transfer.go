package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/driver/session"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// A live upgrade sends its state over a socket that both drivers get from the
// manager: first the text, then the descriptors.

// Bounds that a successor enforces.
const (
	maxStateBytes  = 256 << 20
	maxDescriptors = 1 << 20
	partBytes      = control.MaxMessageBytes - control.HeaderBytes
)

// transfer takes the socket between the two drivers, and how long the transfer may
// take.
func transfer(m *control.Message) (*control.Conn, time.Duration, error) {
	timeout, err := parseTimeout(m)
	if err != nil {
		return nil, 0, err
	}
	fd := m.FDs[0]
	m.FDs = nil
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	return conn, timeout, err
}

// handover freezes everything and sends it to the successor. On an error everything
// resumes; otherwise it stays frozen until Thaw, or for ever.
func (d *driver) handover(ctx context.Context, m *control.Message) (_ []byte, err error) {
	conn, timeout, err := transfer(m)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	if err := d.device.Movable(); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	served, sockets, err := d.freeze(ctx, m.Seq)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.thawOf(m.Seq))
		}
	}()

	crashpoint.Here("driver.handover.frozen")
	img, rings, err := d.device.Snapshot()
	if err != nil {
		d.upgrade.mu.Lock()
		d.upgrade.noteBlockersLocked(err)
		d.upgrade.mu.Unlock()
		return nil, err
	}

	if len(img.Sessions) != len(served) { // a session is being opened, or is ending
		return nil, gpuerr.New(gpuerr.Busy, "%d sessions have %d sockets; try again", len(img.Sessions), len(served))
	}

	text, err := json.Marshal(state{Snapshot: img, Served: served})
	if err != nil {
		return nil, gpuerr.New(gpuerr.Internal, "encode the state: %v", err)
	}
	if err := d.sendState(ctx, conn, text, sockets, rings); err != nil {
		return nil, fmt.Errorf("send to the successor: %w", err)
	}

	crashpoint.Here("driver.handover.told")
	return control.HandoverReply{Sessions: uint32(len(served)), Bytes: uint64(len(text))}.AppendTo(nil), nil
}

// sendState sends a state and its descriptors. It duplicates descriptors one by one
// as it sends them, so that a driver close to its limit of descriptors can still be
// replaced.
func (d *driver) sendState(ctx context.Context, conn *control.Conn, text []byte, sockets []session.Socket, rings []gpu.RingFDs) error {
	head, err := json.Marshal(stateHead{Version: d.upgrade.version, Bytes: uint64(len(text)), Descriptors: uint64(len(sockets) + 3*len(rings))})
	if err != nil {
		return err
	}

	seq := uint64(0)
	send := func(body []byte, fds []int) error {
		seq++
		return conn.Send(ctx, &control.Message{Type: control.TypePart, Seq: seq, Body: body, FDs: fds})
	}

	if err := send(head, nil); err != nil {
		return err
	}

	for len(text) > 0 {
		n := min(len(text), partBytes)
		if err := send(text[:n], nil); err != nil {
			return err
		}
		text = text[n:]
	}

	lend := func(fds ...int) error {
		defer closeAll(fds)
		return send(nil, fds)
	}

	for _, s := range sockets {
		fd, err := s.Dup()
		if err == nil {
			err = lend(fd)
		}
		if err != nil {
			return err
		}
	}

	for _, r := range rings {
		fds, err := r.Dup()
		if err == nil {
			err = lend(fds[:]...)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// receiveState receives what sendState sends. The caller owns the descriptors.
func (d *driver) receiveState(conn *control.Conn) (text []byte, fds []int, err error) {
	defer func() {
		if err != nil {
			closeForeign(fds)
			fds = nil
		}
	}()

	seq := uint64(0)
	next := func() (*control.Message, error) {
		m, err := conn.Recv()
		if err != nil {
			return nil, gpuerr.New(gpuerr.Disconnected, "the other driver has stopped sending its state: %v", err)
		}
		if seq++; m.Type != control.TypePart || m.Reply || m.Seq != seq || len(m.FDs) > 0 && len(m.Body) > 0 {
			closeForeign(m.FDs)
			return nil, gpuerr.New(gpuerr.Protocol, "part %d of the other driver's state is %v, %d", seq, m.Type, m.Seq)
		}
		return m, nil
	}

	m, err := next()
	if err != nil {
		return nil, nil, err
	}

	closeForeign(m.FDs)
	var head stateHead
	if err := strict(m.Body, &head); err != nil {
		return nil, nil, err
	}
	if head.Version != d.upgrade.version {
		return nil, nil, gpu.VersionError(d.upgrade.version, head.Version)
	}
	if head.Bytes > maxStateBytes || head.Descriptors > maxDescriptors {
		return nil, nil, gpuerr.New(gpuerr.Protocol, "the other driver's state has %d bytes and %d descriptors", head.Bytes, head.Descriptors)
	}

	for uint64(len(text)) < head.Bytes {
		m, err := next()
		if err != nil {
			return nil, nil, err
		}
		closeForeign(m.FDs)
		if len(m.Body) == 0 || uint64(len(m.Body)) > head.Bytes-uint64(len(text)) {
			return nil, nil, gpuerr.New(gpuerr.Protocol, "the other driver's state is not as long as it said")
		}
		text = append(text, m.Body...)
	}

	for uint64(len(fds)) < head.Descriptors {
		m, err := next()
		if err != nil {
			return nil, fds, err
		}
		fds = append(fds, m.FDs...)
		if len(m.FDs) == 0 || uint64(len(fds)) > head.Descriptors {
			return nil, fds, gpuerr.New(gpuerr.Protocol, "the other driver has not as many descriptors as it said")
		}
	}

	return text, fds, nil
}

// strict decodes exactly one JSON value and refuses unknown fields.
func strict(text []byte, v any) error {
	r := json.NewDecoder(bytes.NewReader(text))
	r.DisallowUnknownFields()
	err := r.Decode(v)
	if err == nil {
		if _, more := r.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the value")
		}
	}
	if err != nil {
		return gpuerr.New(gpuerr.Protocol, "the state of the other driver: %v", err)
	}
	return nil
}

// adopter is a pool that can adopt memory of another driver of this epoch.
type adopter interface {
	Adopt(ctx context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error)
}

// takeOver builds everything from another driver's state, and leaves it frozen.
func (d *driver) takeOver(ctx context.Context, m *control.Message) ([]byte, error) {
	conn, timeout, err := transfer(m)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer conn.Close()

	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	pool, ok := d.pool.(adopter)
	switch {
	case u.frozen || u.adopts.Swap(true):
		return nil, errStandsStill
	case !ok:
		return nil, gpuerr.New(gpuerr.Unimplemented, "this driver has a pool that lends it nobody else's memory")
	}

	text, fds, err := d.receiveState(conn)
	if err != nil {
		return nil, err
	}

	crashpoint.Here("driver.takeover.heard")
	var st state
	if err := strict(text, &st); err != nil {
		closeForeign(fds)
		return nil, err
	}

	// A session without a socket would belong to no client, and never end.
	if st.Snapshot == nil || len(st.Served) > len(fds) || len(st.Served) != len(st.Snapshot.Sessions) {
		closeForeign(fds)
		return nil, gpuerr.New(gpuerr.Protocol, "the state of the other driver has sessions without sockets")
	}

	st.Snapshot.Version = gpu.SnapshotVersion // receiveState has checked the version of the whole state
	sockets, rings := fds[:len(st.Served):len(st.Served)], fds[len(st.Served):]
	if err := checkKinds(sockets, rings); err != nil {
		closeForeign(fds)
		return nil, err
	}
	if err := d.device.Restore(ctx, st.Snapshot, rings, pool.Adopt); err != nil {
		closeAll(sockets)
		return nil, err
	}

	crashpoint.Here("driver.takeover.imported")
	if u.adopted, err = u.hub.Adopt(d.ctx, st.Served, sockets, d.device.Session); err != nil {
		return nil, err
	}

	return control.HandoverReply{Sessions: uint32(len(st.Served)), Bytes: uint64(len(text))}.AppendTo(nil), nil
}

// resumeAdopted resumes everything that was taken over. The other driver is dead.
func (d *driver) resumeAdopted() error {
	u := &d.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()

	if u.adopted == nil {
		return gpuerr.New(gpuerr.Invalid, "nothing was taken over")
	}

	d.device.Thaw()
	crashpoint.Here("driver.takeover.going")
	u.adopted.Start(func(run func() error) {
		if d.beginSession() != nil {
			return // the device is closed, and with it the session
		}
		go func() {
			defer d.sessions.Done()
			if err := run(); err != nil {
				d.log.Debug("session ended", "why", err)
			}
		}()
	})

	u.adopted = nil
	u.adopts.Store(false)
	return nil
}
