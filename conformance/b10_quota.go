package conformance

import (
	"errors"
	"fmt"
	"sync"

	"capgpu/client"
	"capgpu/gpuerr"
)

// quota:
//
//	Given a tenant at its limit of device memory, with sessions, a restricted session
//	and several that allocate in each,
//	when all of them allocate and free at once, and the limit is lowered and raised,
//	then their total is never above the limit, and in the end exactly at it; each
//	refusal is a quota with the requested and the available amount; freed memory can be
//	had again, all of it; lowering the limit below use takes nothing away and blocks
//	only new allocations; and another tenant does not notice.
//
// Sources: Genode #4451, #4284; HAMi #1181, oom_check; k8s-device-plugin #720; IGT
// vf-access-after-resize-down.
func quota(c *Case) {
	const page = 4096
	conn := c.dial(Dave)
	one, two := c.open(conn), c.open(conn)
	below := get[Session](c, "restrict")(two.Restrict(c.Ctx, client.Policy{Facet: client.FacetMemory}))
	sessions := []Session{one, two, below}
	other := c.session(Bob)

	var mu sync.Mutex
	var have uint64
	var refusals int
	count := func(n uint64, sign bool) {
		mu.Lock()
		defer mu.Unlock()
		if sign {
			have += n
		} else {
			have -= n
		}
		if have > DaveBytes {
			c.Failf("%d bytes are held; the limit is %d", have, DaveBytes)
		}
	}

	refused := func(err error) bool {
		var e *gpuerr.Error
		mu.Lock()
		defer mu.Unlock()
		refusals++
		switch {
		case !errors.As(err, &e) || e.Code != gpuerr.Quota:
			c.Failf("a refusal is %v", err)
		case e.Resource != c.Stack.Can().Memory || e.Asked == 0 || e.Available >= e.Asked:
			c.Failf("a refusal tells resource=%q asked=%d available=%d", e.Resource, e.Asked, e.Available)
		default:
			return true
		}
		return false
	}

	P, rounds := c.Count(6, 32), c.Count(4, 30)
	var workers sync.WaitGroup
	kept := make([][]Buffer, P)
	for i := range P {
		workers.Go(func() {
			s := sessions[i%len(sessions)]
			for round := range rounds {
				var mine []Buffer
				for size := uint64(4 * page); ; {
					b, err := s.Buffer(c.Ctx, size)
					if err == nil {
						count(size, true)
						mine = append(mine, b)
						continue
					}
					if !refused(err) {
						return
					}
					if size /= 2; size < page {
						break
					}
				}

				if round == rounds-1 {
					kept[i] = mine
					return
				}

				for _, b := range mine {
					count(b.Size(), false) // before: a concurrent request may have it
					if err := b.Close(c.Ctx); err != nil {
						c.Failf("free: %v", err)
						return
					}
				}
			}
		})
	}

	for range 3 {
		c.normal(other)
	}

	workers.Wait()
	if len(c.failures()) > 0 {
		return
	}

	// A goroutine that was refused while another was freeing may have left
	// something.
	for {
		b, err := one.Buffer(c.Ctx, page)
		if err != nil {
			c.Refused(err, "the page behind the last", gpuerr.Quota)
			break
		}
		count(page, true)
		kept[0] = append(kept[0], b)
	}

	if text, err := c.held(Dave); have != DaveBytes {
		c.Fatalf("at the limit %d bytes are held; it is %d (the ledger: %s, %v)", have, DaveBytes, text, err)
	}

	// Free one page, and have it again: exactly.
	var some Buffer
	for i, mine := range kept {
		if len(mine) > 0 {
			some, kept[i] = mine[0], mine[1:]
			break
		}
	}

	c.Must(some.Close(c.Ctx), "free")
	again := c.buffer(one, some.Size())
	_, err := one.Buffer(c.Ctx, page)
	c.Refused(err, "a page more", gpuerr.Quota)

	// Lower the limit below what is held, and raise it.
	c.Must(c.Stack.SetLimit(c.Ctx, Dave, c.Stack.Can().Memory, DaveBytes/2), "lower the limit")
	c.Must(again.Write(c.Ctx, 0, []byte{1}), "use what is held")
	freed := again.Size()
	c.Must(again.Close(c.Ctx), "free")
	_, err = one.Buffer(c.Ctx, page)
	c.Refused(err, "allocate under a lower limit", gpuerr.Quota)
	c.Must(c.Stack.SetLimit(c.Ctx, Dave, c.Stack.Can().Memory, 0), "raise the limit")
	c.buffer(one, freed)
	for _, u := range get[[]Use](c, "read the charges")(c.Stack.Charges(c.Ctx, Dave, 0)) {
		c.That(u.Used+u.Reserved <= max(u.Limit, DaveBytes), "the ledger has %+v", u)
	}

	c.Must(one.Close(c.Ctx), "close")
	c.Must(two.Close(c.Ctx), "close")
	c.nothingHeld(Dave)
	c.normal(other)
	c.Notef("%d at once, %d rounds, %d exact refusals, %s held at the limit", P, rounds, refusals, fmt.Sprint(have))
}
