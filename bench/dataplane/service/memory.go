package service

import (
	"fmt"
	"os"
	"strings"
)

// Anonymous is the private memory of a process, in bytes: RssAnon of
// /proc/PID/status (proc(5)). Memory that it shares with clients is not included.
func Anonymous(pid int) (bytes float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "RssAnon: %f kB", &kib); n == 1 {
			return kib * 1024, nil
		}
	}
	return 0, fmt.Errorf("/proc/%d/status does not tell RssAnon", pid)
}
