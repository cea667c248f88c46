package backend

import "context"

// A list is one job (OpList) that stands for many: the device runs the entries of
// Job.List in order, each as if it had been submitted by itself, and begins none
// after one that was not ok. The job ends as the last one that it began.
//
// The entries are launches, copies and fills, never lists. Their Context and Check
// are those of the job; their ids are 0. Spans, Inline and Program of the job itself
// are empty: it reaches what its entries do.
//
// One entry may be part of several jobs that are outstanding, so a backend does not
// write to it. Cancel stops a list between two entries at the latest, and within one
// as it does a job. Completion.Begun says how many entries were begun.
//
// A list that was recorded is the same in each of its jobs: these have its number
// (Job.Recording), so that a Recorder can keep what it made of it. A list with patches has
// none.
//
// Where the backend is a Runner, an entry may come with what Prepare said of it
// (Job.Ready): then the job is as it was when it was prepared.

// MaxListEntries bounds Job.List.
const MaxListEntries = 1024

// Recorder is a Backend that keeps something of a recorded list between its jobs.
type Recorder interface {
	// Ready makes what the launches of a recording need, such as compiled programs, before its
	// first job comes: then no deadline counts that time. It may take long, and ends soon when
	// ctx does; after an error the recording is not made. Memory that the entries name may be
	// gone meanwhile, and a program may be released.
	Ready(ctx context.Context, c *Context, entries []Job) error
	// Forget says that no job of a recording is outstanding, and none will be. It comes before
	// anything that the list names is unmapped or released, and waits for nothing.
	Forget(recording uint64)
}

// EachSpan calls f for everything that a job reaches, until that returns false.
func (j *Job) EachSpan(f func(Span) bool) {
	for i := range j.Spans {
		if !f(j.Spans[i]) {
			return
		}
	}
	for i := range j.List {
		for _, span := range j.List[i].Spans {
			if !f(span) {
				return
			}
		}
	}
}
