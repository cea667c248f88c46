package sim

// Mutant is a mistake that a run has on purpose: a simulator that does not find it
// finds nothing.
type Mutant int

// The mistakes.
const (
	NoMutant          Mutant = iota
	MutantLies               // the device says ok of what it has not done
	MutantTwice              // a completion reaches the client twice
	MutantSwaps              // two completions change places
	MutantResidue            // memory is not zero when it is handed out
	MutantScrubs             // memory is not scrubbed between two buffers
	MutantLeaksCharge        // a connection's charge stays
	MutantLosesWakes         // a wake never arrives
	MutantBansLong           // a ban is not lifted
	MutantIgnoresStop        // a job that was cancelled is done all the same
	MutantWrongPlace         // the device writes beside where it was told to
	MutantHidesFaults        // nobody is told of IOMMU faults
	MutantNoQuiesce          // a function goes on when its driver is dead
	NumMutants
)

var mutantNames = [NumMutants]string{
	"none", "lies", "twice", "swaps", "residue", "unscrubbed", "leaked charge", "lost wakes", "long bans", "ignored cancels", "wrong place",
	"hidden faults", "no quiesce",
}

func (m Mutant) String() string { return mutantNames[m] }
