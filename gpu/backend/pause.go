package backend

// Pauser is a Burster that can stand still in the midst of what was submitted, so that
// somebody's short work need not wait until that ends.
type Pauser interface {
	Burster

	// Pause asks the device to stand still as soon as it can. When it does it calls still,
	// once, from any goroutine, perhaps before Pause returns: from then until Resume nothing
	// that was submitted is begun, goes on or touches a span, and Burst and BurstList run
	// although it is outstanding. All of it keeps its place; what was running goes on where it
	// was, and its DeviceTime is without the pause.
	//
	// A job that is at no place where it can be left goes on, perhaps to its end, and then
	// still is called before the next one begins.
	//
	// Submit takes jobs as ever. So do Cancel, ResetContext, Reset and Close end them, also in
	// the pause: the completion comes then.
	//
	// What a job has written before the pause, others that reach the same memory may see in it,
	// as with two queues of one device.
	Pause(still func())

	// Resume ends the pause, or takes back that it was asked for. It is called once for each
	// Pause, and still is not called for a Pause after Resume has returned, unless it was on
	// its way.
	Resume()
}
