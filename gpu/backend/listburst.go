package backend

import "time"

// ListBurster is a Burster that also runs lists on the caller's goroutine, a slice at a
// time: between two slices the core may give the device to somebody else.
type ListBurster interface {
	Burster

	// BurstList runs entries of an OpList in order, from the one of that number on, until
	// all have run, one was not ok, or about so much time has passed. Each comes with what
	// Prepare said of it (Job.Ready). n is how many it began; end is how the last of them
	// did, and the device time of all. The id of the job is this slice's.
	//
	// n == 0 with an end that is pending means that the next entry must go by Submit, in a
	// list of what is left: for the reasons that Burst has, or as it is not ready. n == 0
	// with Cancelled means that the job's context has trapped before.
	//
	// What else is said of Burst holds here: the device must be idle, nothing can cancel a
	// slice, and Reset, Close, Cancel and Submit wait for its end. Time is looked at after
	// work that is expected to take some microseconds, and so a slice may take longer by
	// what that does.
	BurstList(job *Job, from int, most time.Duration) (n int, end End)
}
