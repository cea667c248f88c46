package model

// mistake is a change of the protocol: one that the exploration must find, or one
// that it must let pass.
type mistake int

const (
	_ mistake = iota // none

	// Package ring, and package gpu above it.
	clientLooksNotAgain
	driverLooksNotAgain
	restLooksNotAgain
	submitWithoutFence
	completeWithoutFence
	clientArmWithoutFence
	driverArmWithoutFence
	cqHeadWithoutFence
	restWithoutFence
	clientLooksFirst
	driverLooksFirst
	signalBeforePublish
	tailBeforeSlot
	tornSlot
	tailNotReleased
	wordBeforeRecord
	firstWordFirst
	firstWordNotKept
	lapNotChecked
	driverReadsSlotFirst
	clientReadsRecordFirst
	sqHeadBeforeCopy
	cqHeadBeforeCopy
	fullTooLate
	completionsFullTooLate
	completionsNeverFull
	driverArmsWrong
	clientAsksWrong
	clearedAfterSignal
	disarmsBeforeSleep
	drainsBeforeSleep
	drainsAfterArming
	submittedTooLate
	publishedTooLate
	stateBeforeTail
	stateNotDoubted
	closeWithoutSignal

	extraWake
	flagLeftSet
	storeForCAS
	clientStaysArmed
	driverStaysArmed

	// One goroutine for many rings.
	reactorArmsOne
	reactorTrustsOldQuestions
	reactorDrainsLate
	reactorSkipsBusyRings
	reactorNeverDrains

	reactorDrainsAsItArms
	reactorServesTheRung
)

// change is a mistake, where it shows, and what it must break: nothing, if it is
// harmless.
type change struct {
	name     string
	mistake  mistake
	in       config
	property string
}

// Small models in which changes show.
var (
	tiny         = config{reduced: true, entries: 1, completions: 1, slotWords: 1, submissions: 3, pollMax: 2}
	small        = config{reduced: true, entries: 2, completions: 2, slotWords: 1, submissions: 4, pollMax: 2}
	whole        = config{entries: 2, completions: 2, slotWords: 2, submissions: 3, pollMax: 2}
	wholePSO     = config{order: pso, entries: 2, completions: 2, slotWords: 2, submissions: 3, pollMax: 2}
	duplex       = config{reduced: true, duplex: true, entries: 1, completions: 1, slotWords: 1, submissions: 3, pollMax: 2}
	service      = config{reduced: true, service: true, entries: 1, completions: 1, slotWords: 1, submissions: 3, pollMax: 2}
	fullService  = config{reduced: true, service: true, entries: 2, completions: 1, slotWords: 1, submissions: 2, pollMax: 1}
	wholeService = config{service: true, entries: 2, completions: 1, slotWords: 1, submissions: 2, pollMax: 1}
	closing      = config{reduced: true, closes: true, entries: 1, completions: 2, slotWords: 1, submissions: 3, pollMax: 2}
	openPipe     = config{reduced: true, closes: true, noEOF: true, entries: 1, completions: 2, slotWords: 1, submissions: 3, pollMax: 2}
	two          = config{reduced: true, awakeClient: true, entries: 1, completions: 1, slotWords: 1, submissions: 2, fewer: 1}
	twoFull      = config{reduced: true, awakeClient: true, entries: 2, completions: 1, slotWords: 1, submissions: 2, fewer: 1}
)

// ringChanges are changes of docs/wire.md's ring.
var ringChanges = []change{
	{"the client arms and sleeps without looking again", clientLooksNotAgain, tiny, propWake},
	{"the driver arms and sleeps without looking again", driverLooksNotAgain, tiny, propWake},
	{"the queue says that it sleeps and does not look again", restLooksNotAgain, service, propWake},
	{"sqTail is a Store, not a Swap: the look at sqWait overtakes it", submitWithoutFence, tiny, propWake},
	{"the first word is stored by a Store, not a Swap", completeWithoutFence, tiny, propWake},
	{"cqWait is armed by a Store, not a Swap", clientArmWithoutFence, tiny, propWake},
	{"sqWait is armed by a Store, not a Swap", driverArmWithoutFence, tiny, propWake},
	{"cqHead is a Store, not a Swap", cqHeadWithoutFence, small, propWake},
	{"the queue says that it sleeps by a Store", restWithoutFence, service, propWake},
	{"the client looks at sqWait before it publishes", clientLooksFirst, tiny, propWake},
	{"the driver looks at cqWait before it publishes", driverLooksFirst, tiny, propWake},
	{"the client signals before it publishes", signalBeforePublish, tiny, propWake},
	{"sqTail is published before the slot is written", tailBeforeSlot, whole, propEntry},
	{"sqTail is published between the words of a slot", tornSlot, whole, propEntry},
	{"sqTail is stored plainly, on a machine that reorders stores", tailNotReleased, wholePSO, propEntry},
	{"a completion's word is stored before its record", wordBeforeRecord, whole, propEntry},
	{"the first word is stored first, and the others after it", firstWordFirst, whole, propPositions},
	{"the first word is stored as it comes, not last", firstWordNotKept, wholeService, propPositions},
	{"the client does not look at the lap of a word", lapNotChecked, small, propEntry},
	{"the driver's read of a slot overtakes that of sqTail", driverReadsSlotFirst, tiny, propEntry},
	{"the client's read of a record overtakes that of its word", clientReadsRecordFirst, whole, propEntry},
	{"sqHead is published before the entry is copied out", sqHeadBeforeCopy, whole, propSlot},
	{"cqHead is published before the completion is copied out", cqHeadBeforeCopy, whole, propSlot},
	{"the client finds the ring full one entry too late", fullTooLate, tiny, propSlot},
	{"the driver finds the completions full one too late", completionsFullTooLate, small, propSlot},
	{"the driver does not look for a free completion", completionsNeverFull, small, propSlot},
	{"the driver arms for entries when it needs completions", driverArmsWrong, small, propWake},
	{"the client that took completions wakes a driver that waits for entries", clientAsksWrong, small, propWake},
	{"the wait flag is cleared after the signal", clearedAfterSignal, tiny, propWake},
	{"the driver takes its wait flag away before it sleeps", disarmsBeforeSleep, tiny, propWake},
	{"a sleeper empties its pipe before it sleeps", drainsBeforeSleep, tiny, propWake},
	{"the client empties its pipe after it has armed, and then looks", drainsAfterArming, tiny, propWake},
	{"Client.submitted is stored after sqTail", submittedTooLate, duplex, propAccused},
	{"Server.published is counted after the first word", publishedTooLate, fullService, propAccused},
	{"state is stored before the last word", stateBeforeTail, closing, propClose},
	{"the client finds state and does not look at the word again", stateNotDoubted, closing, propClose},
	{"Close neither signals nor closes the pipe", closeWithoutSignal, openPipe, propWake},

	{"Close only closes the pipe", closeWithoutSignal, closing, ""},
	{"sqTail is stored plainly, where stores stay in order", tailNotReleased, whole, ""},
	{"every Flush wakes", extraWake, small, ""},
	{"the side that wakes leaves the wait flag set", flagLeftSet, small, ""},
	{"the wait flag is cleared by a Store before the signal", storeForCAS, duplex, ""},
	{"the client that found something stays armed", clientStaysArmed, small, ""},
	{"the driver that woke or found something stays armed", driverStaysArmed, small, ""},
}

// reactorChanges are changes of a driver that serves two rings in one goroutine.
var reactorChanges = []change{
	{"only one of the rings is armed", reactorArmsOne, two, propWake},
	{"the rings are armed and not looked at again", driverLooksNotAgain, two, propWake},
	{"sqWait is armed by a Store, not a Swap", driverArmWithoutFence, two, propWake},
	{"a full ring is armed for entries", driverArmsWrong, twoFull, propWake},
	{"the doorbells are drained between arming and sleeping", reactorDrainsLate, two, propWake},
	{"a ring that was rung is thought to be armed still", reactorTrustsOldQuestions, two, propWake},
	{"a ring that is ready when it is armed is left to the next poll", reactorSkipsBusyRings, two, propWake},
	{"the doorbells are never drained, so that it never sleeps", reactorNeverDrains, two, propEnd},

	{"the doorbells are drained before each is armed", reactorDrainsAsItArms, two, ""},
	{"only rings that have rung are looked at after a sleep", reactorServesTheRung, two, ""},
	{"no ring is disarmed", driverStaysArmed, two, ""},
	{"every Flush wakes", extraWake, two, ""},
	{"the side that wakes leaves the wait flag set", flagLeftSet, two, ""},
}
