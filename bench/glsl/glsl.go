// Package glsl compiles GLSL compute shaders for tests, by Debian's
// glslangValidator (glslang-tools) and spirv-opt, spirv-val (spirv-tools).
package glsl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const toolLimit = 60 * time.Second

// Available returns which tool is missing, and its package; nil if none is.
func Available() error {
	for tool, pkg := range map[string]string{
		"glslangValidator": "glslang-tools", "spirv-opt": "spirv-tools", "spirv-val": "spirv-tools",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; install %s", tool, pkg)
		}
	}
	return nil
}

// Compile makes a Vulkan 1.1 (SPIR-V 1.3) module of a compute shader.
func Compile(source string) ([]byte, error) {
	return filter([]byte(source), "in.comp", "glslangValidator", "--target-env", "vulkan1.1", "-V", "in.comp", "-o", "out.spv")
}

// Optimise is spirv-opt -O.
func Optimise(module []byte) ([]byte, error) {
	return filter(module, "in.spv", "spirv-opt", "--target-env=vulkan1.1", "-O", "in.spv", "-o", "out.spv")
}

// Validate is spirv-val.
func Validate(module []byte) error {
	_, err := filter(module, "out.spv", "spirv-val", "--target-env", "vulkan1.1", "out.spv")
	return err
}

// filter runs a tool in a folder of its own with content under the name in, and
// returns its out.spv.
func filter(content []byte, in string, tool string, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "capgpu-glsl-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	if err := os.WriteFile(filepath.Join(dir, in), content, 0o600); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", tool, err), errors.New(string(bytes.TrimSpace(said))))
	}

	return os.ReadFile(filepath.Join(dir, "out.spv"))
}
