// Package ctl runs gpuctl in a guest, and reads its output.
package ctl

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"capgpu/qemu/guest/tap"
)

// Run runs gpuctl and returns its output. An error contains the output, too.
func Run(args ...string) (string, error) {
	out, err := exec.Command("/bin/gpuctl", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		err = fmt.Errorf("gpuctl %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, err
}

// InUse names the resources that `gpuctl budget --json` shows as held.
func InUse(c *tap.Check, budget string) []string {
	var entries []struct {
		Resource string `json:"resource"`
		Used     uint64 `json:"used"`
	}
	c.Must(json.Unmarshal([]byte(budget), &entries), "parse "+budget)
	c.That(len(entries) > 0, "no budget entries in %s", budget)
	var used []string
	for _, e := range entries {
		// deviceTime and auditBytes are spent, not held.
		if e.Used != 0 && e.Resource != "deviceTime" && e.Resource != "auditBytes" {
			used = append(used, e.Resource)
		}
	}
	return used
}
