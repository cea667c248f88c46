package llama

import (
	"context"
	"fmt"
	"slices"

	"capgpu/client"
)

// A routine is a recorded sequence of launches, and its replay: one command, or
// several if the launches are too many for one list.
type routine struct {
	launches []Launch
	commands []client.Command // replays of the lists, in order
	lists    []*client.List
}

// routines are all recorded routines of a model. Slices are indexed by the batch
// size's index.
type routines struct {
	sizes           []int
	body, head, sum []*routine
	both            []*routine // body and head, if as many rows want logits
	greedy          *routine   // and the choice of the next token
	several         *routine   // listPasses of them, if they fit a list; or nil
	clear, unit     *routine
}

// routines are those of the blueprint, not recorded yet.
func (b *Blueprint) routines() *routines {
	of := func(parts ...[]Launch) *routine {
		r := &routine{}
		for _, p := range parts {
			r.launches = append(r.launches, p...)
		}
		return r
	}

	r := &routines{
		sizes:  batchSizes(b.options.Batch),
		greedy: of(b.Body(1), b.Head(1), b.Next(1)),
		clear:  of(b.clear()), unit: of(b.unit()),
	}

	passes := make([][]Launch, listPasses)
	for i := range passes {
		passes[i] = r.greedy.launches
	}

	if several := of(passes...); len(split(several.launches)) == 1 {
		r.several = several
	}

	for _, n := range r.sizes {
		r.body, r.head, r.both = append(r.body, of(b.Body(n))), append(r.head, of(b.Head(n))), append(r.both, of(b.Body(n), b.Head(n)))
		r.sum = append(r.sum, of(b.sum(n)))
	}

	return r
}

func (r *routines) all() []*routine {
	all := []*routine{r.greedy, r.clear, r.unit}
	if r.several != nil {
		all = append(all, r.several)
	}
	return slices.Concat(all, r.body, r.head, r.both, r.sum)
}

// sizeFor is the index of the smallest batch that holds this many rows.
func (r *routines) sizeFor(rows int) int {
	for i, n := range r.sizes {
		if n >= rows {
			return i
		}
	}
	return len(r.sizes) - 1
}

// The bounds of a list (docs/wire.md, RecordList).
const (
	listCommands  = client.MaxListCommands
	listArgBytes  = 64 << 10
	entryBytes    = 64
	bindingBytes  = 32
	chargeFixed   = 1 << 10
	chargeEntry   = 1 << 10
	chargeArgFold = 4
)

func argBytes(l *Launch) int { return (len(l.Bindings)*bindingBytes + len(l.Inline) + 7) &^ 7 }

// split divides launches into parts that fit a list each.
func split(all []Launch) [][]Launch {
	var parts [][]Launch
	from, args := 0, 0
	for i := range all {
		n := argBytes(&all[i])
		if i-from == listCommands || args+n > listArgBytes {
			parts = append(parts, all[from:i])
			from, args = i, 0
		}
		args += n
	}
	return append(parts, all[from:])
}

func recordingBytes(part []Launch) uint64 {
	n := len(part) * entryBytes
	for i := range part {
		n += argBytes(&part[i])
	}
	return uint64(n)
}

func listCharge(part []Launch) uint64 {
	args := recordingBytes(part) - uint64(len(part)*entryBytes)
	return charged(chargeFixed + chargeEntry*uint64(len(part)) + chargeArgFold*args)
}

// record makes the lists of a routine. Lists made before an error belong to the
// model, and are freed with it.
func (m *Model) record(ctx context.Context, r *routine) error {
	for _, part := range split(r.launches) {
		commands := make([]client.Command, len(part))
		for i := range part {
			commands[i] = m.launch(&part[i])
		}
		l, err := m.session.RecordList(ctx, commands...)
		if err != nil {
			return fmt.Errorf("record a pass: %w", err)
		}
		r.lists = append(r.lists, l)
		r.commands = append(r.commands, l.Replay())
	}
	r.launches = nil
	return nil
}

// launch converts a launch of the blueprint to one of the session.
func (m *Model) launch(from *Launch) *client.Launch {
	l := &client.Launch{Program: m.programs[from.Program], Inline: from.Inline}
	for _, b := range from.Bindings {
		l.Bindings = append(l.Bindings, client.Binding{Buffer: m.buffers[b.Buffer], Off: b.Off, Len: b.Bytes})
	}
	return l
}
