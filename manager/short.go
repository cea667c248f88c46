package manager

import "fmt"

// A driver that has run out of descriptors, mappings or memory answers a ping with an error
// that says so. Its sessions continue, but it cannot serve new ones.
//
//	answers ──error──► short: shown, logged ──maxShort pings──► replaced
//	   ▲                  │
//	   └──────answer──────┘

// maxShort is for how many pings in a row a driver may be short. The next driver serves
// clients better than one that is ready and serves none.
const maxShort = 5

// answered takes a driver's answer to a ping. It returns why the driver has to end.
func (l *driverLink) answered(short error) error {
	if short == nil {
		if l.shortPings > 0 {
			l.short(l, "")
		}
		l.shortPings = 0
		return nil
	}
	l.shortPings++
	l.short(l, clipped(short.Error()))
	if l.shortPings > maxShort {
		return fmt.Errorf("the driver was short of what it needs to serve for %d pings in a row: %w", l.shortPings, short)
	}
	return nil
}

// showShort publishes which resource the driver of a link has run out of; empty: none.
func (d *device) showShort(l *driverLink, what string) {
	if !d.board.short(l, what) {
		return
	}
	if what == "" {
		d.log.Info("the driver has what it needs again", "epoch", l.epoch)
		return
	}
	d.say("device %s is short of what it needs to serve: %s", d.name, what)
	d.log.Warn("the driver is short of what it needs to serve", "epoch", l.epoch, "what", what)
}
