package manager

// gateQueue serves waiting tenants in turn, and the users of each tenant in turn: between two
// gates of a tenant, every other waiting tenant gets one. The requests of one user are served
// in the order of arrival. Connections bound their number.
type gateQueue struct {
	tenants []*tenantLine // the next one first
	waiting int
}

type tenantLine struct {
	tenant *tenantServer
	users  []*userLine // the next one first
}

type userLine struct {
	uid      uint32
	requests []*gateRequest
}

// gateRequest is a connection that waits for a gate.
type gateRequest struct {
	tenant *tenantServer
	uid    uint32
	gone   func() bool     // reports whether the client has hung up; it does not block
	answer chan gateAnswer // capacity 1
}

type gateAnswer struct {
	gate *gateProcess
	err  error
}

func (q *gateQueue) add(r *gateRequest) {
	q.waiting++
	for _, t := range q.tenants {
		if t.tenant == r.tenant {
			t.add(r)
			return
		}
	}
	t := &tenantLine{tenant: r.tenant}
	t.add(r)
	q.tenants = append(q.tenants, t)
}

func (t *tenantLine) add(r *gateRequest) {
	for _, u := range t.users {
		if u.uid == r.uid {
			u.requests = append(u.requests, r)
			return
		}
	}
	t.users = append(t.users, &userLine{uid: r.uid, requests: []*gateRequest{r}})
}

// next takes the next request that is not of the tenant except, or returns nil.
func (q *gateQueue) next(except *tenantServer) *gateRequest {
	for i, t := range q.tenants {
		if t.tenant == except {
			continue
		}
		u := t.users[0]
		r := u.requests[0]
		q.tenants = append(q.tenants[:i], q.tenants[i+1:]...)
		t.users = t.users[1:]
		if u.requests = u.requests[1:]; len(u.requests) > 0 {
			t.users = append(t.users, u)
		}
		if len(t.users) > 0 {
			q.tenants = append(q.tenants, t)
		}
		q.waiting--
		return r
	}

	return nil
}

// remove removes a request and reports whether it was queued.
func (q *gateQueue) remove(r *gateRequest) bool {
	for i, t := range q.tenants {
		if t.tenant != r.tenant {
			continue
		}
		for j, u := range t.users {
			for k, x := range u.requests {
				if x != r {
					continue
				}
				q.waiting--
				if u.requests = append(u.requests[:k], u.requests[k+1:]...); len(u.requests) == 0 {
					t.users = append(t.users[:j], t.users[j+1:]...)
				}
				if len(t.users) == 0 {
					q.tenants = append(q.tenants[:i], q.tenants[i+1:]...)
				}
				return true
			}
		}
	}

	return false
}
