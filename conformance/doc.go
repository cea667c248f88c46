// Package conformance specifies a GPU service by tests that any back end can run:
// fifteen behaviours, from the cascade of a session's end to the live upgrade of
// its driver. They use public capabilities, a script of the device's faults, and
// the operator's commands, and no internals.
//
// Another back end, transport or deployment implements Stack and calls
//
//	func TestConformance(t *testing.T) { conformance.Run(t, myStack) }
//
// Check runs one behaviour without the testing package, for guests and for suites
// that break a stack on purpose. Package local has the Stack of this project's
// processes.
//
// # Words
//
// A Stack is a running service. The suite dials it as one of the tenants of this
// package, and gets a Conn and its Sessions, which look the same with the Go client
// and a Cap'n Proto client. Work is a task for the device with its expected result:
// Normal, Fault, Hang, and so on; each back end decides how to cause it.
//
// # Bounds
//
// Whatever must end "in time" must end within the bounds that the session's own
// description publishes (HangBound, RevokeBound). A call that does not come back at all
// is a failure after Patience.
//
// # Not applicable
//
// A behaviour is judged as a whole: passed, failed, or not applicable with the
// reason, which is only for behaviours that are physically impossible on a device.
// If only a part is impossible, the notes say so, and the verdict is for the rest.
//
// Trust: the suite trusts only the kernel's reports about processes (/proc).
package conformance
