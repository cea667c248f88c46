package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"capgpu/internal/vulkanhost"
	"capgpu/manager"
)

// checkEngine checks the options of developer mode that take the place of the fake function.
func (o *options) checkEngine() error {
	switch {
	case o.engine != "" && o.engine != "lane":
		return fmt.Errorf("--engine is %q; it is lane, or use --vulkan", o.engine)
	case o.engine != "" && o.vulkan:
		return errors.New("--engine and --vulkan exclude each other: a developer's device-manager serves one device")
	case (o.engine != "" || o.vulkan) && !o.dev:
		return errors.New(`--engine and --vulkan are for developer mode: add --dev, or a function of "kind": "vulkan" to the policy (docs/policy.md)`)
	case (o.engine != "" || o.vulkan) && o.policyPath != "":
		return errors.New("--engine and --vulkan replace the policy's functions: leave out --policy, or write the function into it")
	}
	return nil
}

// devPolicy is the built-in policy, with the device that was asked for.
func (o *options) devPolicy() (*manager.Policy, error) {
	p := manager.DevPolicy()
	switch {
	case o.vulkan:
		devices, err := vulkanhost.Host{}.Devices()
		if err != nil {
			return nil, fmt.Errorf("--vulkan: %w", err)
		}
		d := devices[0]
		p.ServeNodes(d.Name, d.Address, manager.NodePolicy{
			Kind: "vulkan", Nodes: d.Nodes, ICD: d.ICD, Files: d.Files, Proc: d.Proc, Most: 4, EngineBytes: 2 << 30,
		})
	case o.engine != "":
		p.ServeNodes(o.engine+"0", "", manager.NodePolicy{Kind: o.engine, Most: 4, EngineBytes: 2 << 30})
	default:
		return p, nil
	}

	for _, f := range p.Functions {
		engine := filepath.Join(filepath.Dir(o.launcher), "gpu-engine-"+f.Node.Kind)
		if _, err := os.Stat(engine); err != nil {
			return nil, fmt.Errorf("the program %s, which runs the device, is missing: build it beside device-manager (make build), or name a folder that has it by --engine-launcher", engine)
		}
	}
	return p, nil
}
