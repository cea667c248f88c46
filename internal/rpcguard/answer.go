package rpcguard

import (
	"errors"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

const (
	// noFD is CapDescriptor.attachedFd's "none".
	noFD = 0xff
	// maxFDs is the kernel's SCM_MAX_FD.
	maxFDs = 253
	// Results are searched so deep and so wide for capabilities to pipeline on.
	maxResultDepth  = 4
	maxResultFields = 64
)

// AllocResults implements capnp.Returner.
func (c *call) AllocResults(size capnp.ObjectSize) (capnp.Struct, error) {
	if c.results != nil {
		return capnp.Struct{}, errors.New("results allocated twice")
	}

	root, err := newMessage()
	if err != nil {
		return capnp.Struct{}, err
	}

	c.results = root.Message()
	if c.ret, err = root.NewReturn(); err != nil {
		return capnp.Struct{}, err
	}

	c.ret.SetAnswerId(c.q.id)
	c.ret.SetReleaseParamCaps(false)
	if c.payload, err = c.ret.NewResults(); err != nil {
		return capnp.Struct{}, err
	}

	s, err := capnp.NewStruct(c.payload.Segment(), size)
	if err != nil {
		return capnp.Struct{}, err
	}

	return s, c.payload.SetContent(s.ToPtr())
}

// PrepareReturn implements capnp.Returner.
func (c *call) PrepareReturn(err error) { c.err = err }

// ReleaseResults implements capnp.Returner; Return did it.
func (c *call) ReleaseResults() {}

// Return implements capnp.Returner: it puts the result into the tables, so that
// the peer may use it as soon as a byte of it has left, and then sends it.
func (c *call) Return() {
	defer c.v.running.Done()
	defer c.cancel(nil)
	var objects []*object
	if c.results != nil {
		objects = c.objects()
		defer c.results.CapTable().Reset()
	}

	var fds []int
	if c.err == nil {
		fds, c.err = c.takeFDs(objects)
	}

	if c.err != nil {
		c.v.returnException(c, exceptionOf(c.err))
		return
	}

	if failure := c.v.returnResults(c, fds); failure != nil {
		closeAll(fds)
		c.v.returnException(c, failure)
	}
}

// objects returns the objects behind the result's capabilities, nil for a capability without
// one. The vat holds them from here on, even if the result is not sent.
func (c *call) objects() []*object {
	table := c.results.CapTable()
	objects := make([]*object, table.Len())
	for i := range objects {
		objects[i] = objectOf(table.At(i))
		c.v.hold(objects[i])
	}
	return objects
}

// takeFDs gathers a descriptor for each result capability that carries one, -1
// for the others, and checks that all of them come from Export.
func (c *call) takeFDs(objects []*object) ([]int, error) {
	if c.results == nil {
		if _, err := c.AllocResults(capnp.ObjectSize{}); err != nil {
			return nil, err
		}
	}

	table := c.results.CapTable()
	if table.Len() == 0 {
		return nil, nil
	}
	if table.Len() > maxFDs {
		return nil, gpuerr.New(gpuerr.Internal, "%d capabilities in one result", table.Len())
	}

	fds := make([]int, table.Len())
	for i := range fds {
		fds[i] = -1
	}

	for i := range fds {
		if !table.At(i).IsValid() {
			continue
		}
		o := objects[i]
		if o == nil {
			closeAll(fds)
			return nil, gpuerr.New(gpuerr.Internal, "a result capability that was not made by Export")
		}
		if o.spec.DupFD == nil {
			continue
		}
		fd, err := o.spec.DupFD()
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds[i] = fd
	}

	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// returnResults settles and sends a call's results, or says why it cannot, with
// nothing changed.
func (v *vat) returnResults(c *call, fds []int) *exc.Exception {
	n := c.results.CapTable().Len()
	if size, err := c.results.TotalSize(); err != nil || size+uint64(n)*32+64 > uint64(v.limits.MaxMessageBytes) {
		return exceptionOf(gpuerr.New(gpuerr.Invalid, "the result would be larger than a message of %d bytes; ask for less", v.limits.MaxMessageBytes))
	}

	var descriptors rpccp.CapDescriptor_List
	if n > 0 {
		var err error
		if descriptors, err = c.payload.NewCapTable(int32(n)); err != nil {
			return exceptionOf(err)
		}
	}

	if failure := v.settleResults(c, descriptors, fds); failure != nil {
		return failure
	}

	m := outMessage{}
	for _, fd := range fds {
		if fd >= 0 {
			m.fds = append(m.fds, fd)
		}
	}

	var err error
	if m.bytes, err = c.results.Marshal(); err != nil {
		m.closeFDs()
		v.cancel(gpuerr.New(gpuerr.Internal, "a result could not be marshalled: %v", err))
		return nil
	}

	v.out.send(m)
	return nil
}

// settleResults enters the results' capabilities into the tables and their
// descriptors, and lets the calls that waited for them go on. It closes the
// descriptors that the peer does not want, and leaves -1.
func (v *vat) settleResults(c *call, descriptors rpccp.CapDescriptor_List, fds []int) *exc.Exception {
	v.mu.Lock()
	defer v.unlock()
	q, n := c.q, descriptors.Len()
	if n > 0 && len(v.exports)+n > v.limits.MaxExports {
		return exceptionOf(gpuerr.New(gpuerr.Busy, "%d capabilities are held; release some", len(v.exports)))
	}

	// The peer neither reads nor releases the results of a question that it
	// finished with releaseResultCaps; calls that wait for them still count.
	wanted := !q.finished || !q.releaseCaps
	table := c.results.CapTable()
	attached := uint8(0)
	for i := range n {
		d := descriptors.At(i)
		d.SetAttachedFd(noFD)
		client := table.At(i)
		switch {
		case !client.IsValid():
			d.SetNone()
			q.results = append(q.results, nil)
			continue
		case !wanted:
			d.SetNone()
			q.results = append(q.results, &export{client: client.AddRef()})
			closeAll(fds[i : i+1])
			fds[i] = -1
		default:
			e := v.addExportLocked(client.AddRef())
			d.SetSenderHosted(e.id)
			q.results = append(q.results, e)
		}
		if fds[i] >= 0 {
			d.SetAttachedFd(attached)
			attached++
		}
	}

	if n > 0 {
		if content, err := c.payload.Content(); err == nil {
			q.paths = findCaps(nil, content, nil, maxResultDepth)
		}
	}

	v.settleLocked(q)
	return nil
}

// findCaps appends where below p there are capabilities.
func findCaps(found []capPath, p capnp.Ptr, fields []uint16, depth int) []capPath {
	if i := p.Interface(); i.IsValid() {
		return append(found, capPath{fields: append([]uint16(nil), fields...), index: int(i.Capability())})
	}

	s := p.Struct()
	if !s.IsValid() || depth == 0 {
		return found
	}

	for i := range min(s.Size().PointerCount, maxResultFields) {
		child, err := s.Ptr(i)
		if err != nil {
			continue
		}
		found = findCaps(found, child, append(fields, i), depth-1)
	}

	return found
}

// returnException settles and sends a call that failed.
func (v *vat) returnException(c *call, e *exc.Exception) {
	v.mu.Lock()
	c.q.err = e
	c.q.results = nil
	v.settleLocked(c.q)
	v.unlock()
	v.sendException(c.q.id, e, false)
}

// newMessage allocates an outgoing message. Its memory is never given back to
// go-capnp's pools; the collector takes it.
func newMessage() (rpccp.Message, error) {
	_, segment, err := capnp.NewMessage(capnp.MultiSegment(nil))
	if err != nil {
		return rpccp.Message{}, err
	}
	return rpccp.NewRootMessage(segment)
}

// sendBuilt sends a small message without capabilities. Building one fails only
// by a bug, which ends the connection.
func (v *vat) sendBuilt(build func(rpccp.Message) error) {
	root, err := newMessage()
	if err == nil {
		err = build(root)
	}
	var m outMessage
	if err == nil {
		m.bytes, err = root.Message().Marshal()
	}
	if err != nil {
		v.cancel(gpuerr.New(gpuerr.Internal, "a message could not be built: %v", err))
		return
	}
	v.out.send(m)
}

func (v *vat) sendException(id uint32, e *exc.Exception, releaseParamCaps bool) {
	v.sendBuilt(func(root rpccp.Message) error {
		ret, err := root.NewReturn()
		if err != nil {
			return err
		}
		ret.SetAnswerId(id)
		ret.SetReleaseParamCaps(releaseParamCaps)
		out, err := ret.NewException()
		if err != nil {
			return err
		}
		out.SetType(rpccp.Exception_Type(e.Type))
		return out.SetReason(e.Error())
	})
}

func (v *vat) sendBootstrap(id, exportID uint32) {
	v.sendBuilt(func(root rpccp.Message) error {
		ret, err := root.NewReturn()
		if err != nil {
			return err
		}
		ret.SetAnswerId(id)
		ret.SetReleaseParamCaps(false)
		payload, err := ret.NewResults()
		if err != nil {
			return err
		}
		if err := payload.SetContent(capnp.NewInterface(payload.Segment(), 0).ToPtr()); err != nil {
			return err
		}
		table, err := payload.NewCapTable(1)
		if err != nil {
			return err
		}
		table.At(0).SetSenderHosted(exportID)
		table.At(0).SetAttachedFd(noFD)
		return nil
	})
}

func (v *vat) sendLoopback(id uint32) {
	v.sendBuilt(func(root rpccp.Message) error {
		d, err := root.NewDisembargo()
		if err != nil {
			return err
		}
		d.Context().SetReceiverLoopback(id)
		t, err := d.NewTarget()
		if err != nil {
			return err
		}
		t.SetImportedCap(0)
		return nil
	})
}

func (v *vat) sendAbort(e *exc.Exception) {
	v.sendBuilt(func(root rpccp.Message) error {
		abort, err := root.NewAbort()
		if err != nil {
			return err
		}
		abort.SetType(rpccp.Exception_Type(e.Type))
		return abort.SetReason(e.Error())
	})
}
