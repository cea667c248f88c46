package boot

// Constants that guest-run and the guest that it boots share.
const (
	JobPath    = "etc/capgpu/job.json" // of the Job, in the guest's root
	OutputPort = "capgpu.output"       // the program's output
	StatusPort = "capgpu.status"       // how it ended: one Status
)

// Job is the program that a guest is to run.
type Job struct {
	Args      []string // the program, and its arguments
	Env       []string // besides PATH, HOME and CAPGPU_HW
	Functions int      // edu functions that must be there
}

// Status is how the program ended.
type Status struct {
	Exit   int
	Signal int    // that killed it; 0 = it exited
	Error  string // why it was not run; "" = it was
}
