// Command hw is the client of the hardware guest: it starts device-manager on two edu
// functions, uses them as tenants do, has a hostile driver attack from inside, kills drivers
// and manager, has the host pull a function out, and checks the effects each time. Each check
// is a line "ok N - …". It writes the number of checks to descriptor 3 once the last has run.
//
// The tenants: alice has edu0, bob has edu1, carol has both.
//
// -break=WHAT sabotages one part, for tests of the tests; see sabotages.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"

	"capgpu/qemu/guest/tap"
)

// The functions and their tenants; see guest/etc/hw.json.
const (
	alice, bob, carol = "alice", "bob", "carol"
	edu0, edu1        = "edu0", "edu1"
)

var (
	addresses = map[string]string{edu0: "0000:01:00.0", edu1: "0000:02:00.0"}
	owners    = map[string]string{edu0: alice, edu1: bob}
)

const (
	friendlyPolicy = "/etc/capgpu/hw.json"
	hostilePolicy  = "/etc/capgpu/hw-hostile.json"
	runDir         = "/run/capgpu"
	auditPath      = "/var/lib/capgpu/audit.log"
)

// sabotages maps a name to an act of sabotage and to the part that must notice; no other part
// is run then.
var sabotages = map[string]func(s *suite){
	"bit":       (*suite).checkWork,      // one bit of a copy's result is wrong
	"bystander": (*suite).checkBystander, // bob's data change while alice misbehaves
	"scrub":     (*suite).checkMemory,    // the next owner's memory holds a byte
	"policy":    (*suite).checkAttacks,   // the hostile driver is the honest one, so that nothing is attacked
	"unplug":    (*suite).checkRemoval,   // the host is not asked to pull the function out
	"leak":      (*suite).checkAccounts,  // a session stays open when the accounts are looked at
}

// suite is the shared state of the checks.
type suite struct {
	tap.Suite
	broken  string
	seed    uint64
	kills   int
	manager *manager
}

func main() {
	s := &suite{}
	flag.StringVar(&s.broken, "break", "", "what to break on purpose")
	flag.Uint64Var(&s.seed, "seed", 1, "of the random moments")
	flag.IntVar(&s.kills, "kills", 100, "how often drivers are killed at random moments")
	flag.Parse()
	if _, ok := sabotages[s.broken]; !ok && s.broken != "" {
		fmt.Printf("not ok 1 - there is no part %q to break; there are %v\n", s.broken, slices.Sorted(maps.Keys(sabotages)))
		os.Exit(1)
	}

	s.Broken = s.broken != ""
	ok := s.run()
	if s.manager != nil {
		s.manager.kill()
	}
	if !ok {
		os.Exit(1)
	}

	if err := s.Tell(); err != nil {
		fmt.Println("hw: tell init the number of checks:", err)
		os.Exit(1)
	}
}

// run is every check in order. It stops where nothing else can work.
func (s *suite) run() bool {
	s.checkStart("two functions claimed, two drivers ready", friendlyPolicy)
	if s.Failed > 0 {
		s.showLog()
		return false
	}

	if broken := sabotages[s.broken]; broken != nil {
		broken(s)
		return s.Failed == 0
	}

	s.checkProcesses()
	s.checkWork()
	s.checkCapnp()
	s.checkBystander()
	s.checkMemory()
	s.checkKills()
	s.checkManagerKilled()
	s.checkStop("clean stop: functions released, nothing left")
	s.checkRefusal()

	s.checkStart("a hostile driver starts beside an honest one", hostilePolicy)
	if !s.manager.running() {
		s.showLog()
		return false
	}

	s.checkAttacks()
	s.checkRemoval()
	s.checkAccounts()
	s.checkStop("stop after a removal: nothing left")
	s.checkLog()
	if s.Failed > 0 {
		s.showLog()
	}

	return s.Failed == 0
}
