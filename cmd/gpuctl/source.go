package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"capgpu/program"
)

// sourceEndings are those of files that are compiled.
var sourceEndings = []string{".comp", ".glsl"}

// programFile makes a bundle of the file that arg names, unless arg names a program
// of a device. With debug set, the compiler keeps source lines.
func (c *compileArgs) programFile(ctx context.Context, arg string, debug bool) (bundle []byte, isFile bool, err error) {
	ext := filepath.Ext(arg)
	source := slices.Contains(sourceEndings, ext)
	if !source {
		if err := c.notSource(arg); err != nil {
			return nil, true, err
		}
	}
	if !source && ext != ".spv" && !strings.Contains(arg, "/") {
		return nil, false, nil
	}

	module, err := c.readProgram(ctx, arg, source, debug)
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

func (c *compileArgs) readProgram(ctx context.Context, path string, compile, debug bool) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, inputError(err)
	}
	defer f.Close()

	if compile {
		return c.compile(ctx, path, debug)
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
