package manager

// gateQueue has tenants wait for gates in turn, and of each tenant its users: between two
// gates of a tenant every other one that waits has one, and so it is with users. A user's
// requests are served in the order in which they came. Connections bound how many there
// are.
type gateQueue struct {
	tenants []*tenantLine // whose turn is next comes first
	waiting int
}

type tenantLine struct {
	tenant *tenantServer
	users  []*userLine // whose turn is next comes first
}

type userLine struct {
	uid      uint32
	requests []*gateRequest
}

// gateRequest is a connection that waits for a gate.
type gateRequest struct {
	tenant *tenantServer
	uid    uint32
	gone   func() bool     // nobody wants it any more; it does not block
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

// next takes the request whose turn it is, if there is one that is not of the tenant
// except.
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

// remove takes a request out, and reports whether it was there.
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
