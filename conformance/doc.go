// Package conformance is what a GPU service must do, as tests that any back end can
// run: fifteen behaviours, from the cascade of a session's end to the live upgrade of
// its driver. They use public capabilities, a script of the device's faults, and the
// operator's words; nothing of the inside.
//
// Who has another back end, transport or deployment implements Stack and calls
//
//	func TestConformance(t *testing.T) { conformance.Run(t, myStack) }
//
// Check runs one behaviour without the testing package, for guests and for suites that
// break a stack on purpose. Folder local has the Stack of this project's processes.
//
// # Words
//
// A Stack is a running service. It is dialled as one of the tenants of this package;
// what comes of it are a Conn and its Sessions, which look the same whether the Go
// client or a Cap'n Proto client is below. Work is something for the device to do, with
// what must come of it: Normal, Fault, Hang, and so on; each back end says how it is
// made to happen there.
//
// # Bounds
//
// Whatever must end "in time" must end within the bounds that the session's own
// description publishes (HangBound, RevokeBound). A call that does not come back at all
// is a failure after Patience.
//
// # What is not applicable
//
// A behaviour is judged as a whole: passed, failed, or not applicable with the reason,
// which is only for what cannot physically be on a device. Where a part of one cannot
// be, it says so in its notes and holds for the rest.
//
// Trust: the suite believes what the kernel says of processes (/proc), and nobody else.
package conformance
