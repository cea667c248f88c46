package attack

import (
	"context"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/wire"
	"capgpu/control"
)

// hangUp makes requests with descriptors in the answer, and is gone before the
// answer.
func hangUp(ctx context.Context, a *attacker) error {
	broker, err := wire.Dial(ctx, a.socket)
	if err != nil {
		return err
	}
	defer broker.Close()

	for ctx.Err() == nil {
		m, err := broker.Call(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{}.AppendTo(nil), nil)
		a.answered(err)
		if err != nil {
			continue
		}

		conn, err := control.NewConn(m.FDs[0], control.ConnOptions{Descriptors: true})
		if err != nil {
			return err
		}

		asked := [...]struct {
			typ  control.MsgType
			body []byte
		}{
			{control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 2 << 20}.AppendTo(nil)},
			{control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil)},
			{control.TypeCreateQueue, control.CreateQueueRequest{Entries: 16, ArgBytes: 4096}.AppendTo(nil)},
			{control.TypeRestrict, control.RestrictRequest{Facet: uint32(a.random.IntN(3))}.AppendTo(nil)},
		}

		for seq := range uint64(1 + a.random.IntN(8)) {
			ask := asked[a.random.IntN(len(asked))]
			if conn.Send(ctx, &control.Message{Type: ask.typ, Seq: seq + 1, Body: ask.body}) != nil {
				break
			}
		}

		_ = conn.Close()
	}

	return nil
}

// hangUpBroker does the same on a tenant socket: the requested sessions are opened
// and nobody takes them.
func hangUpBroker(ctx context.Context, a *attacker) error {
	for ctx.Err() == nil {
		fd, err := wire.Connect(a.socket, unix.SOCK_SEQPACKET)
		if err != nil {
			return err
		}
		conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
		if err != nil {
			return err
		}
		for seq := range uint64(1 + a.random.IntN(4)) {
			a.answered(conn.Send(ctx, &control.Message{Type: control.TypeOpenDevice, Seq: seq + 1, Body: control.OpenDeviceRequest{}.AppendTo(nil)}))
		}
		_ = conn.Close()
	}
	return nil
}
