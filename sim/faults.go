package sim

// fault injects a fault: into a client (faults_client.go), the driver, the manager
// or the host (faults_service.go), or the function (faults_device.go, which also
// has the device's faults with single jobs). Entries that are listed more than once
// shall happen more often.
func (w *world) fault() {
	faults := [...]func(){
		w.clientKilled, w.clientStopped, w.tailLies, w.entryChanged, w.neverDrained, w.memoryPunched, w.badHandles, w.flood, w.garbage,
		w.driverKilled, w.driverStopped, w.exhaustion, w.removal, w.wakesDelayed, w.clockJump, w.managerCrash, w.revokeRace, w.functionTrouble,
		w.clientStopped, w.entryChanged, w.entryChanged, w.neverDrained, w.pointerBomb, w.hangs,
	}
	faults[w.rand.IntN(len(faults))]()
}
