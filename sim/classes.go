package sim

// Class is one of the 24 classes of faults that the service must survive.
type Class int

// The classes, numbered as everywhere (docs/reliability-method.md).
const (
	ClientKilled Class = iota + 1
	ClientStopped
	TailLies
	EntryChanged
	NeverDrained
	MemoryPunched
	BadHandles
	Flood
	Garbage
	PointerBomb
	DriverKilled
	DriverStopped
	KernelPanic
	Exhaustion
	NeverSignals
	ErrorCompletion
	DuplicateCompletion
	LostInterrupt
	SpuriousInterrupt
	IOMMUFault
	Removal
	WakeDelayed
	ClockJump
	ManagerCrash
	numClasses
)

var classNames = [numClasses]string{
	"", "client killed", "client stopped with a half-written ring", "tail jump, rewind, wrap", "entry changed after validation",
	"completion queue never drained", "memory truncated or punched", "stale, forged, wrapped handles", "flood of capabilities",
	"garbage, half-open connections, floods of them", "Cap'n Proto pointer bombs", "driver killed at a labelled point", "driver stopped",
	"panic in a kernel", "memory, descriptors or disk exhausted", "fence never signals", "error completion", "duplicate completion",
	"lost interrupt", "spurious interrupt", "IOMMU fault", "surprise removal", "doorbell wake delayed or reordered", "clock jump",
	"manager crash, revoke racing transfer",
}

func (c Class) String() string { return classNames[c] }

// Hits counts faults by class.
type Hits [numClasses]int

// Classes is the number of the 24 classes that were hit.
func (h *Hits) Classes() (n int) {
	for _, k := range h[1:] {
		if k > 0 {
			n++
		}
	}
	return n
}

func (h *Hits) add(o *Hits) {
	for i := range h {
		h[i] += o[i]
	}
}
