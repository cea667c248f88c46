package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"capgpu/program"
)

// compiler turns GLSL into SPIR-V.
const compiler = "glslangValidator"

// programFile makes a bundle of the file that arg names, unless arg names a program
// of a device. With debug set, the compiler keeps source lines.
func programFile(ctx context.Context, arg string, debug bool) (bundle []byte, isFile bool, err error) {
	ext := filepath.Ext(arg)
	if ext != ".comp" && ext != ".spv" && !strings.Contains(arg, "/") {
		return nil, false, nil
	}

	module, err := readProgram(ctx, arg, ext == ".comp", debug)
	if err != nil {
		return nil, true, err
	}

	manifest, err := readManifest(strings.TrimSuffix(arg, ext) + ".json")
	if err != nil || manifest == nil && isBundle(module) {
		return module, true, err
	}
	if manifest == nil {
		manifest = &program.Manifest{}
	}
	if manifest.Name == "" {
		manifest.Name = nameOf(arg)
	}

	bundle, err = program.Encode(module, manifest)
	if err != nil {
		err = usagef("%s: %v", arg, err)
	}

	return bundle, true, err
}

func readProgram(ctx context.Context, path string, compile, debug bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, inputError(err)
	}
	defer f.Close()

	if compile {
		return compileGLSL(ctx, path, debug)
	}

	module, err := io.ReadAll(io.LimitReader(f, program.MaxBundleBytes+1))
	switch {
	case err != nil:
		return nil, inputError(err)
	case len(module) > program.MaxBundleBytes:
		return nil, usagef("%s is larger than any program may be (%s)", path, bytesText(program.MaxBundleBytes))
	case len(module) == 0:
		return nil, usagef("%s is empty", path)
	}

	return module, nil
}

// inputError is an error about a file that the user named.
func inputError(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return &hinted{usagef("%s", pathText(pathErr)), pathHint(pathErr)}
	}
	return err
}

// isBundle tells a bundle from a bare module.
func isBundle(data []byte) bool { return strings.HasPrefix(string(data), "CGPB") }

// compileGLSL runs the compiler. Its messages are for the user.
func compileGLSL(ctx context.Context, path string, debug bool) ([]byte, error) {
	tool, err := exec.LookPath(compiler)
	if err != nil {
		return nil, &hinted{usagef("%s has to be compiled, and there is no %s here", path, compiler), "Install it (Debian: apt-get install glslang-tools), or compile it elsewhere and name the .spv file."}
	}

	dir, err := os.MkdirTemp("", "gpuctl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	module := filepath.Join(dir, "module.spv")
	args := []string{"-V", "--target-env", "vulkan1.1", "-o", module}
	if debug {
		args = append(args, "-g")
	}

	output, err := exec.CommandContext(ctx, tool, append(args, path)...).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &hinted{usagef("%s does not compile: %s", path, compilerErrors(string(output))), "Correct the source."}
	}

	return os.ReadFile(module)
}

// compilerErrors are the error lines of the compiler's output, at most a few.
func compilerErrors(output string) string {
	var errs []string
	for line := range strings.Lines(output) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "ERROR: "); ok && len(errs) < 5 && !strings.HasPrefix(text, "0:0:") {
			errs = append(errs, text)
		}
	}
	if len(errs) == 0 {
		return strings.TrimSpace(output)
	}
	return strings.Join(errs, "; ")
}

// readManifest reads the manifest beside a module; nil if there is none.
func readManifest(path string) (*program.Manifest, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, inputError(err)
	}
	m, refused := program.ParseManifest(text)
	if refused != nil {
		return nil, &hinted{usagef("the manifest %s: %s", path, strings.TrimPrefix(refused.Message, "the manifest: ")), "docs/program-profile.md shows what a manifest may say. Without one, all is taken from the module."}
	}
	return m, nil
}

// nameOf derives a program's name from a file's: letters, digits and underscores.
func nameOf(path string) string {
	base := filepath.Base(path)
	base = strings.TrimSuffix(base, filepath.Ext(base))
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, base)
	return name[:min(len(name), program.MaxNameBytes)]
}
