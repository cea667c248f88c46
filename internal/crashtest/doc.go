// Package crashtest kills processes of the service at work, and checks that no client got a
// false answer and that nothing is left.
//
// It holds tests only. They build device-manager, gpu-mock and gpu-gate with the tag
// crashpoint (package crashpoint), run them as they are installed, and work beside them
// as clients of both kinds, over the tenant socket and over Cap'n Proto:
//
//	TestCrashPoints   each process dies at each labelled place of it
//	TestKills         drivers, gates and clients are killed at random moments
//	TestStopped…, TestNo…, TestManager…   other faults of a process
//
// Each client makes new inputs for each piece of work and knows the answer. It compares work
// that was reported ok with that: a false ok fails the test. So does work that is neither
// completed nor refused in time, an end without a typed error, an object of a dead session
// that works, and a process, descriptor, socket, cgroup or charge that is left in the end.
//
// The short form runs with the other tests; CAPGPU_CRASH_ROUNDS, CAPGPU_KILLS and
// CAPGPU_CRASH_SEED make it long (make crash-campaign, make kill-campaign).
package crashtest
