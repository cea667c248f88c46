package edu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"capgpu/ddf"
)

// Counters say how the device behaved. They only grow.
type Counters struct {
	LostInterrupts     uint64 // work that had ended without its interrupt
	SpuriousInterrupts uint64 // that had no reason
	Storms             uint64
	Repeats            uint64 // steps after which the bytes had not arrived
}

type counters struct{ lost, spurious, storms, repeats atomic.Uint64 }

// Counters is a snapshot.
func (d *Device) Counters() Counters {
	c := &d.counts
	return Counters{c.lost.Load(), c.spurious.Load(), c.storms.Load(), c.repeats.Load()}
}

const (
	// watchEvery is how often the device is looked at, also while nothing runs.
	watchEvery = 100 * time.Millisecond
	// stormPause is how long a vector stays masked after a storm. Work is found to
	// have ended by looking, meanwhile.
	stormPause = time.Second
)

// runInterrupts acknowledges interrupts and has the engine look. The vector is one of
// MSI, so that there is nothing to rearm (ddf.Interrupt.Ack).
func (d *Device) runInterrupts() {
	for {
		_, err := d.vector.Wait(d.ctx)
		switch {
		case d.ctx.Err() != nil:
			return
		case errors.Is(err, ddf.ErrStorm):
			d.counts.storms.Add(1)
			if !sleep(d.ctx, stormPause) {
				return
			}
			if err := d.vector.Unmask(); err != nil {
				d.vanish("its interrupt cannot be unmasked: %v", err)
				return
			}
			continue
		case err != nil:
			d.vanish("its interrupt is gone: %v", err)
			return
		}
		why, ok := d.read(regInterruptStatus)
		if !ok {
			return
		}
		if why == 0 {
			d.counts.spurious.Add(1)
		} else if !d.write(regAcknowledge, why) {
			return
		}
		signal(d.look)
	}
}

// runWatch finds out that the device is gone when nobody else would.
func (d *Device) runWatch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-d.gone:
			return
		case <-d.ctx.Done():
			return
		}
		if !d.present() {
			return
		}
	}
}

// vanish notes that the device is gone, for good. The attendant tells the sink.
func (d *Device) vanish(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.why != "" {
		return
	}
	close(d.gone)
	d.why = "the edu device does not answer: " + fmt.Sprintf(format, args...)
	if d.state != live {
		return
	}
	d.state = gone
	d.queue, d.cancelled = nil, nil
	signal(d.attend)
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
