// Command smoke is the client of the smoke guest: it uses a running service as tenants do,
// directly and over Cap'n Proto, attacks it, kills its driver, and checks the accounts
// afterwards. Each check is a line "ok N - …". It writes the number of checks to descriptor 3
// once the last has run.
//
// -break=WHAT sabotages one part, for tests of the tests; see sabotages.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"capgpu/client"
	"capgpu/qemu/guest/rpcpeer"
	"capgpu/qemu/guest/tap"
)

// The guest's policy lets tenant do everything; poor has next to no budget, and the memory
// facet only.
const (
	tenant = "default"
	poor   = "poor"
)

// sabotages maps a name to an act of sabotage and to the part that must notice; no other part
// is run then.
var sabotages = map[string]func(s *smoke){
	"vecadd":  (*smoke).checkWork,     // one bit of a sum is wrong
	"driver":  (*smoke).checkSurvived, // the driver is killed by "hostile" input
	"model":   (*smoke).checkModels,   // wrong weights
	"leak":    (*smoke).checkAccounts, // a session stays open
	"manager": func(*smoke) {},        // init's: it has no client
}

// smoke is the shared state of the checks.
type smoke struct {
	runDir, audit, broken string

	suite tap.Suite

	conn   *client.Conn // tenant socket, for the whole run
	epoch  uint64       // of the present driver
	driver int          // its process id
}

func main() {
	s := &smoke{}
	flag.StringVar(&s.runDir, "run-dir", "/run/capgpu", "`folder` of the tenants' sockets")
	flag.StringVar(&s.audit, "audit", "/var/lib/capgpu/audit.log", "the manager's audit `log`")
	flag.StringVar(&s.broken, "break", "", "what to break on purpose")
	probed := flag.String("probe", "", "only try to be served on this `socket`")
	flag.Parse()
	if _, ok := sabotages[s.broken]; !ok && s.broken != "" {
		fmt.Printf("not ok 1 - there is no part %q to break; there are %v\n", s.broken, slices.Sorted(maps.Keys(sabotages)))
		os.Exit(1)
	}

	if *probed != "" {
		os.Exit(probe(*probed))
	}

	s.suite.Broken = s.broken != ""
	fmt.Println(describeGuest())
	s.checkDevice()
	if s.suite.Failed > 0 {
		os.Exit(1) // nothing else can work
	}

	if broken := sabotages[s.broken]; broken != nil {
		broken(s)
	} else {
		s.checkWork()
		s.checkMemoryFlat()
		s.checkHostile()
		s.checkRevocation()
		s.checkCapnp()
		s.checkCrash()
		s.checkModels()
		s.checkAccounts()
	}

	if s.suite.Failed > 0 {
		os.Exit(1)
	}

	if err := s.suite.Tell(); err != nil {
		fmt.Println("smoke: tell init the number of checks:", err)
		os.Exit(1)
	}
}

// check is one line of the transcript.
type check struct {
	*smoke
	*tap.Check
}

func (s *smoke) check(name string, f func(c *check)) {
	s.suite.Check(name, func(t *tap.Check) { f(&check{s, t}) })
}

func (c *check) dialRPC(tenant string) *rpcpeer.Peer {
	return rpcpeer.Dial(c.Check, c.capnpSocket(tenant))
}

func (s *smoke) socket(tenant string) string { return filepath.Join(s.runDir, tenant+".sock") }

func (s *smoke) capnpSocket(tenant string) string {
	return filepath.Join(s.runDir, tenant+".capnp.sock")
}
