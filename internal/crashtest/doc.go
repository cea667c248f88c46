// Package crashtest kills processes of the service at work, and looks whether anybody
// was told something false and whether anything is left.
//
// It holds tests only. They build device-manager, gpu-mock and gpu-gate with the tag
// crashpoint (package crashpoint), run them as they are installed, and work beside them
// as clients of both kinds, over the tenant socket and over Cap'n Proto:
//
//	TestCrashPoints   each process dies at each labelled place of it
//	TestKills         drivers, gates and clients are killed at random moments
//	TestStopped…, TestNo…, TestManager…   what else can befall a process
//
// Each client makes its inputs anew for each piece of work and knows the answer. What
// it is told to be ok is compared with that: a false ok fails the test, and so does
// anything that is neither told nor refused in time, an end that is not typed, an object
// of a dead session that works, and a process, descriptor, socket, cgroup or charge that
// is left when it is over.
//
// The short form runs with the other tests; CAPGPU_CRASH_ROUNDS, CAPGPU_KILLS and
// CAPGPU_CRASH_SEED make it long (make crash-campaign, make kill-campaign).
package crashtest
