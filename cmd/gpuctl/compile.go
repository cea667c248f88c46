package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// compileArgs say how a source is compiled, as build lines of glslangValidator and
// glslc have it.
type compileArgs struct {
	TargetEnv string   `help:"Compile the source for vulkan1.0 to vulkan1.3, or spirv1.0 to spirv1.6." default:"vulkan1.1" placeholder:"ENV"`
	Define    []string `help:"Define a macro for the source. Repeat for more." short:"D" placeholder:"NAME[=VALUE]" sep:"none"`
	Include   []string `help:"Folder in which the source's #include finds files, after its own. Repeat for more." short:"I" placeholder:"DIR" sep:"none"`
}

// given reports whether any of them is not the default.
func (c *compileArgs) given() bool {
	return c.TargetEnv != "" && c.TargetEnv != defaultEnv || len(c.Define) > 0 || len(c.Include) > 0
}

const defaultEnv = "vulkan1.1"

// environments are the targets, each with the words of glslc for it.
var environments = map[string][]string{
	"vulkan1.0": {"--target-env=vulkan1.0"}, "vulkan1.1": {"--target-env=vulkan1.1"},
	"vulkan1.2": {"--target-env=vulkan1.2"}, "vulkan1.3": {"--target-env=vulkan1.3"},
	"spirv1.0": {"--target-env=vulkan1.0", "--target-spv=spv1.0"}, "spirv1.1": {"--target-env=vulkan1.1", "--target-spv=spv1.1"},
	"spirv1.2": {"--target-env=vulkan1.1", "--target-spv=spv1.2"}, "spirv1.3": {"--target-env=vulkan1.1", "--target-spv=spv1.3"},
	"spirv1.4": {"--target-env=vulkan1.2", "--target-spv=spv1.4"}, "spirv1.5": {"--target-env=vulkan1.2", "--target-spv=spv1.5"},
	"spirv1.6": {"--target-env=vulkan1.3", "--target-spv=spv1.6"},
}

// check refuses arguments that no compiler takes. The compiler reads each behind its
// flag, so that none of them is taken for a flag of its own.
func (c *compileArgs) check() error {
	if _, ok := environments[c.env()]; !ok {
		var known []string
		for name := range environments {
			known = append(known, name)
		}
		slices.Sort(known)
		return usagef("--target-env %s: there are %s", c.TargetEnv, listText(known))
	}
	for _, d := range c.Define {
		if name, _, _ := strings.Cut(d, "="); !isMacro(name) {
			return usagef("-D %s: write NAME or NAME=VALUE, with a name of letters, digits and underscores", d)
		}
	}
	for _, dir := range c.Include {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return usagef("-I %s is no folder", dir)
		}
	}
	return nil
}

func (c *compileArgs) env() string {
	if c.TargetEnv == "" {
		return defaultEnv
	}
	return c.TargetEnv
}

// isMacro reports whether a name is one of a macro.
func isMacro(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// glslang and glslc are the compilers, the first that is installed.
const (
	glslang = "glslangValidator"
	glslc   = "glslc"
)

// commandLine is how a compiler makes a module of a source.
func (c *compileArgs) commandLine(tool, path, module string, debug bool) []string {
	var args []string
	if tool == glslc {
		args = append(args, "-fshader-stage=compute", "-o", module)
		args = append(args, environments[c.env()]...)
	} else {
		args = append(args, "-V", "-S", "comp", "--target-env", c.env(), "-o", module)
	}
	if debug {
		args = append(args, "-g")
	}
	for _, d := range c.Define {
		args = append(args, "-D"+d)
	}
	for _, dir := range c.Include {
		args = append(args, "-I"+dir)
	}
	return append(args, path)
}

// compile runs the compiler. Its messages are for the user.
func (c *compileArgs) compile(ctx context.Context, path string, debug bool) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	tool := glslang
	found, err := exec.LookPath(tool)
	if err != nil {
		tool = glslc
		found, err = exec.LookPath(tool)
	}
	if err != nil {
		return nil, &hinted{usagef("%s has to be compiled, and there is neither %s nor %s here", path, glslang, glslc),
			"Install one (Debian: apt-get install glslang-tools, or glslc), or compile it elsewhere and name the .spv file."}
	}

	dir, err := os.MkdirTemp("", "gpuctl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	module := filepath.Join(dir, "module.spv")
	output, err := exec.CommandContext(ctx, found, c.commandLine(tool, path, module, debug)...).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &hinted{usagef("%s does not compile for %s: %s", path, c.env(), compilerErrors(string(output))),
			"Correct the source, or compile it as its build does: --target-env, -D and -I."}
	}

	return os.ReadFile(module)
}

// compilerErrors are the error lines of the compiler's output, at most a few.
func compilerErrors(output string) string {
	var errs []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		text, ok := strings.CutPrefix(line, "ERROR: ")
		if !ok && strings.Contains(line, ": error: ") { // glslc
			text, ok = line, true
		}
		if ok && len(errs) < 5 && !strings.HasPrefix(text, "0:0:") {
			errs = append(errs, text)
		}
	}
	if len(errs) == 0 {
		return strings.TrimSpace(output)
	}
	return strings.Join(errs, "; ")
}

// notSource refuses arguments of a compiler for what is not compiled.
func (c *compileArgs) notSource(arg string) error {
	if !c.given() {
		return nil
	}
	return usagef("--target-env, -D and -I are for a source (%s), and %s is none", strings.Join(sourceEndings, ", "), fmt.Sprintf("%.80s", arg))
}
