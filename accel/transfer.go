package accel

import "context"

// ToDevice moves a buffer to the device and waits for it. b is Freed afterwards, and as it was
// when ToDevice fails.
func ToDevice[T any](ctx context.Context, b *Buffer[T, Host]) (*Buffer[T, Device], error) {
	if err := b.memory.consume("ToDevice"); err != nil {
		return nil, err
	}
	made, err := upload(ctx, "ToDevice", b)
	if err != nil {
		b.memory.restore()
		return nil, err
	}
	b.host = nil
	return made, nil
}

// CopyToDevice makes a buffer on the device with the elements of b, which stays.
func CopyToDevice[T any](ctx context.Context, b *Buffer[T, Host]) (*Buffer[T, Device], error) {
	m := b.memory
	m.g.mu.Lock()
	err := m.idleLocked("CopyToDevice")
	m.g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return upload(ctx, "CopyToDevice", b)
}

// ToHost moves a buffer to this process and waits for it. b is Freed afterwards, and as it was when
// ToHost fails.
func ToHost[T any](ctx context.Context, b *Buffer[T, Device]) (*Buffer[T, Host], error) {
	m := b.memory
	if err := m.g.check("ToHost"); err != nil {
		return nil, err
	}
	if err := m.consume("ToHost"); err != nil {
		return nil, err
	}

	host := make([]T, m.n)
	if err := m.read(ctx, bytesOf(host)); err != nil {
		m.restore()
		return nil, wrap(DeviceUnavailable, "ToHost", err)
	}
	if err := m.release(ctx); err != nil {
		return nil, err
	}
	return &Buffer[T, Host]{memory: &memory{g: m.g, layout: m.layout, n: m.n}, host: host}, nil
}

func upload[T any](ctx context.Context, op string, b *Buffer[T, Host]) (*Buffer[T, Device], error) {
	made, err := Alloc[T, Device](ctx, b.memory.g.current(), b.memory.n)
	if err != nil {
		return nil, err
	}
	if err := made.memory.write(ctx, bytesOf(b.host)); err != nil {
		_ = made.memory.release(context.WithoutCancel(ctx))
		return nil, wrap(DeviceUnavailable, op, err)
	}
	return made, nil
}

// write and read are how this process reaches memory of the device.

func (m *memory) write(ctx context.Context, p []byte) error { return m.shared.Upload(ctx, p, 0) }

func (m *memory) read(ctx context.Context, p []byte) error { return m.shared.Download(ctx, p, 0) }

// consume takes the buffer from its owner.
func (m *memory) consume(op string) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if err := m.idleLocked(op); err != nil {
		return err
	}
	m.freed = true
	return nil
}

// restore gives it back after a transfer that failed.
func (m *memory) restore() {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	m.freed = false
}
