package sim

// Mutant is a deliberate mistake in a run. A simulator that does not find it finds
// nothing.
type Mutant int

// The mistakes.
const (
	NoMutant          Mutant = iota
	MutantLies               // the device reports ok for work that it has not done
	MutantTwice              // a completion reaches the client twice
	MutantSwaps              // two completions change places
	MutantResidue            // memory is not zero when it is handed out
	MutantScrubs             // memory is not scrubbed between two buffers
	MutantLeaksCharge        // a connection's charge stays
	MutantLosesWakes         // a wake never arrives
	MutantBansLong           // a ban is not lifted
	MutantIgnoresStop        // a cancelled job is done anyway
	MutantWrongPlace         // the device writes beside the right place
	MutantHidesFaults        // IOMMU faults are not reported
	MutantNoQuiesce          // a function keeps running after its driver is dead
	NumMutants
)

var mutantNames = [NumMutants]string{
	"none", "lies", "twice", "swaps", "residue", "unscrubbed", "leaked charge", "lost wakes", "long bans", "ignored cancels", "wrong place",
	"hidden faults", "no quiesce",
}

func (m Mutant) String() string { return mutantNames[m] }
