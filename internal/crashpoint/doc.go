// Package crashpoint names the places at which the service is made to die.
//
//	crashpoint.Here("driver.buffer.mapped")
//
// In a program as it is installed Here is an empty function, and nothing of it is
// left in the code. A program that is built with the tag crashpoint dies at one of
// these places, at the n-th time that it comes by:
//
//	CAPGPU_CRASHPOINT=driver.buffer.mapped:3 device-manager --dev
//
// It dies as by SIGKILL: at once, with every thread of it, and nothing deferred runs.
// It says the label on standard error before, and exits with Status.
//
// A label's first word is the process that dies. The manager itself dies at labels of manager
// and audit. It hands a point of the driver or the gate to the first of these that it starts
// (or with LABEL@2 to the second), and to no other: the next one works.
//
// Labels are unique, and all of them are in the table: a test reads the source of the
// whole project and compares. Package crashtest dies at each of them.
//
// Trust: the builder of the program, and the process that sets its environment, are trusted.
package crashpoint
