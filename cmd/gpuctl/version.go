package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (versionCmd) Run(a *app) error {
	v := versionInfo{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	if a.json {
		a.printJSON(v)
		return nil
	}
	fmt.Fprintf(a.out, "gpuctl %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return nil
}
