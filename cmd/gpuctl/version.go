package main

import (
	"fmt"
	"runtime"

	"github.com/alecthomas/kong"

	"capgpu/internal/cmdline"
)

type versionCmd struct{}

type versionInfo struct {
	Version  string `json:"version"` // the release, or the commit
	Commit   string `json:"commit"`  // or "unknown"
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (versionCmd) Run(a *app) error {
	if a.json {
		a.printJSON(versionInfo{cmdline.Revision(), cmdline.Commit(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
		return nil
	}
	fmt.Fprintln(a.out, "gpuctl", cmdline.Version())
	return nil
}

// versionFlag is --version, which every command has.
type versionFlag bool

func (versionFlag) BeforeReset(k *kong.Kong, a *app) error {
	if err := (versionCmd{}).Run(a); err != nil {
		return err
	}
	k.Exit(exitOK)
	return nil
}
