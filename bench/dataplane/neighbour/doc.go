// Package neighbour has the neighbours of a tenant: a good one, with as much work
// as the tenant has, and several bad ones.
//
// A neighbour is a process of its own: this same program with a hidden first
// argument (RunIfNeighbour). Its parent tells it when to begin and when to stop,
// and it reports the results of its attempts. Its threads have the host's lowest
// priority: the service's reaction is measured, not the reaction of the host's
// scheduler to a client that burns its own CPU.
package neighbour

// Manner is the behaviour of a neighbour.
type Manner string

const (
	// Good launches the same program over as much data as Victim, one after the
	// other: beside it, each of the two has its fair share.
	Good Manner = "good"
	// Endless launches programs that never end.
	Endless Manner = "endless"
	// Flood fills its queues as fast as it can with the shortest work there is.
	Flood Manner = "flood"
	// Quota requests memory until it is refused, and keeps requesting.
	Quota Manner = "quota"
	// Closes closes sessions full of memory, and fills new ones.
	Closes Manner = "closes"
)

// Hostile lists the bad ones.
var Hostile = []Manner{Endless, Flood, Quota, Closes}

// Names are those of the bad ones.
func Names() (all []string) {
	for _, m := range Hostile {
		all = append(all, string(m))
	}
	return all
}

// Report is a neighbour's report when it stops.
type Report struct {
	Done    int            `json:"done"`    // what went well
	Refused map[string]int `json:"refused"` // failures, by error code or outcome
	Err     string         `json:"err,omitempty"`
}
