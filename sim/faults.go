package sim

// fault lets something go wrong: a client (faults_client.go), the driver, the manager or
// the host (faults_service.go), or the function (faults_device.go, which has also what
// the device does wrong with single jobs). What comes up more than once is meant to come
// up more often.
func (w *world) fault() {
	faults := [...]func(){
		w.clientKilled, w.clientStopped, w.tailLies, w.entryChanged, w.neverDrained, w.memoryPunched, w.badHandles, w.flood, w.garbage,
		w.driverKilled, w.driverStopped, w.exhaustion, w.removal, w.wakesDelayed, w.clockJump, w.managerCrash, w.revokeRace, w.functionTrouble,
		w.clientStopped, w.entryChanged, w.entryChanged, w.neverDrained, w.pointerBomb, w.hangs,
	}
	faults[w.rand.IntN(len(faults))]()
}
