package gpu

import (
	"slices"
	"time"

	"capgpu/gpu/handles"
	"capgpu/gpu/recording"
	"capgpu/gpu/snapshot"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// This part of what a driver has told (restore.go) is made of memory and of nothing else:
// fences, programs, and lists of both.

func (im *restorer) fences(s *Session, si *SessionSnapshot) error {
	for i := range si.Fences {
		f, err := restoreFence(s, &si.Fences[i])
		if err != nil {
			return err
		}
		if f.charge, err = s.charged(ledger.Fences, 1); err != nil {
			return err
		}
		ops := revoke.Ops{Quiesce: func() { f.die(outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed}) }, Release: f.charge.Release}
		if f.node, err = s.node.NewChild("fence", ops); err != nil {
			return err
		}
		if err := s.handles.Put(f, f.h); err != nil {
			return err
		}
	}
	return nil
}

// restoreFence checks that a fence's points are in order, and ended where they must be.
func restoreFence(s *Session, fi *FenceSnapshot) (*fence, error) {
	bad := fi.Reached < fi.Initial || fi.Promised < fi.Reached || len(fi.Open) > maxOpenPoints ||
		uint64(len(fi.Past)) != min(fi.PastCount, fencePoints) || !fi.Forgotten.How.Valid()
	f := &fence{session: s, h: fi.Handle}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.initial, f.reached, f.promised, f.pastCount = fi.Initial, fi.Reached, fi.Promised, fi.PastCount
	f.forgotten = point{fi.Forgotten.Value, fi.Forgotten.Ended, fi.Forgotten.How}
	last := uint64(0)
	for i, p := range fi.Past {
		bad = bad || p.Value <= last || p.Value > fi.Reached || !p.Ended || !p.How.Valid()
		last = p.Value
		f.past[(fi.PastCount-uint64(len(fi.Past))+uint64(i))%fencePoints] = point{p.Value, p.Ended, p.How}
	}
	last = fi.Reached
	for i, p := range fi.Open {
		bad = bad || p.Value <= last || p.Value > fi.Promised || !p.How.Valid() || i == 0 && p.Ended
		last = p.Value
		f.open = append(f.open, point{p.Value, p.Ended, p.How})
	}
	if bad {
		return nil, snapshot.Malformed("fence %#x does not agree with itself", uint64(fi.Handle))
	}
	return f, nil
}

func (im *restorer) programs(s *Session, si *SessionSnapshot) error {
	for i := range si.Loaded {
		if err := im.program(s, &si.Loaded[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *restorer) program(s *Session, pi *ProgramSnapshot) (err error) {
	p := &program{session: s, h: pi.Handle, name: pi.Name, bundle: pi.Bundle, loaded: len(pi.Bundle) > 0}
	p.pins.init()
	switch {
	case p.loaded:
		if p.charges[1], err = s.charged(ledger.ProgramBytes, loadedBytes(uint64(len(pi.Bundle)))); err != nil {
			return err
		}
		began := time.Now()
		p.code, err = im.dev.cfg.Backend.Load(im.ctx, slices.Clone(pi.Bundle))
		p.took = time.Since(began)
	case pi.Source != 0:
		above := im.sessions[pi.SourceSession]
		if above == nil {
			return snapshot.Malformed("program %#x was opened from a session that is not there", uint64(pi.Handle))
		}
		if p.source, err = handles.Lookup[program](above.handles, pi.Source); err == nil {
			p.code = p.source.code
		}
	default:
		p.code, err = im.dev.cfg.Backend.Builtin(pi.Name)
	}
	if err != nil {
		return err
	}
	if p.charges[0], err = s.charged(ledger.Programs, 1); err != nil {
		return err
	}
	p.info = p.code.Info()
	p.mu.Lock()
	p.opened = map[*program]struct{}{}
	p.mu.Unlock()
	if p.node, err = s.node.NewChild("program", revoke.Ops{Quiesce: p.quiesce, Release: p.release}); err != nil {
		return err
	}
	if p.source != nil && !p.source.derive(p) {
		return snapshot.Malformed("program %#x was opened from one that is closed", uint64(pi.Handle))
	}
	if p.loaded {
		s.loaded.add(p)
	}
	return s.handles.Put(p, p.h)
}

func (im *restorer) lists(s *Session, si *SessionSnapshot) error {
	for i := range si.Lists {
		if err := im.list(s, &si.Lists[i]); err != nil {
			return err
		}
	}
	return nil
}

// list records a list again, of the same bytes; one that was dead stays so.
func (im *restorer) list(s *Session, li *ListSnapshot) (err error) {
	if li.Entries == 0 || li.Entries > MaxListEntries || li.ArgBytes > MaxListArgBytes || li.ArgBytes%ring.ArgAlign != 0 || li.Frames < 0 || li.Frames > keptFrames {
		return snapshot.Malformed("a list of %d entries", li.Entries)
	}
	l := &list{session: s, h: li.Handle, entries: li.Entries, argBytes: li.ArgBytes, recording: li.Recorded, number: s.dev.recordings.Add(1)}
	l.pins.init()
	if l.charge, err = s.charged(ledger.HostMemory, listBytes(li.Entries, li.ArgBytes)); err != nil {
		return err
	}
	dead := li.Recorded == nil
	if !dead {
		if uint64(len(li.Recorded)) != uint64(li.Entries)*ring.EntryBytes+uint64(li.ArgBytes) {
			return snapshot.Malformed("a list of %d entries has %d bytes", li.Entries, len(li.Recorded))
		}
		if err := l.record(recording.New(li.Recorded, li.Entries), int(li.Entries)); err != nil {
			return err
		}
		for range li.Frames {
			charge, err := s.charged(ledger.HostMemory, l.charge.Amount())
			if err != nil {
				return err
			}
			l.putFrame(l.newFrame(charge))
		}
	} else {
		l.pins.close()
	}
	l.forget(true, dead)
	if l.node, err = s.node.NewChild("list", revoke.Ops{Quiesce: l.quiesce, Release: l.release}); err != nil {
		return err
	}
	return s.handles.Put(l, l.h)
}
