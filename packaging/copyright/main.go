// Command copyright writes the licences and notices of everything that is linked into the
// programs, which have to come along with them.
//
//	usage: copyright -o FILE PACKAGE...
//
// It asks the go command for the packages of the programs, and takes the licence files of
// each from the module cache, and of the standard library from the toolchain. The same
// modules give the same text. A module without a licence is an error: a program that has it
// may not be passed on.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: copyright -o FILE PACKAGE...")
		os.Exit(2)
	}
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "copyright:", err)
		os.Exit(1)
	}
}

func run(out string, programs []string) error {
	parts, err := partsOf(programs)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	write(&text, parts)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(out, text.Bytes(), 0o644)
}

// part is a module of others, or the standard library, with its licence files.
type part struct {
	path, version string
	files         []file
}

type file struct {
	name string // below the part's root
	text string
}

// listed is the go command's description of a package.
type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version string }
	}
}

// partsOf are the parts of the programs, in the order of their paths.
func partsOf(programs []string) ([]part, error) {
	goroot, err := goCommand("env", "GOROOT")
	if err != nil {
		return nil, err
	}

	root := strings.TrimSpace(string(goroot))
	version, err := goCommand("env", "GOVERSION")
	if err != nil {
		return nil, err
	}

	text, err := goCommand(append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module"}, programs...)...)
	if err != nil {
		return nil, err
	}

	library := part{path: "The Go standard library and runtime", version: strings.TrimSpace(string(version))}
	byPath := map[string]*part{}
	for packages := json.NewDecoder(bytes.NewReader(text)); ; {
		var p listed
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read what go list tells: %w", err)
		}
		switch {
		case p.Standard:
			err = library.collect(root, p.Dir)
		case p.Module == nil || p.Module.Main:
		default:
			m := byPath[p.Module.Path]
			if m == nil {
				m = &part{path: p.Module.Path, version: p.Module.Version}
				if r := p.Module.Replace; r != nil {
					m.version += " (" + strings.TrimSpace(r.Path+" "+r.Version) + " in its place)"
				}
				byPath[p.Module.Path] = m
			}
			err = m.collect(p.Module.Dir, p.Dir)
		}
		if err != nil {
			return nil, err
		}
	}

	parts := []part{library}
	for _, m := range byPath {
		parts = append(parts, *m)
	}

	slices.SortFunc(parts[1:], func(a, b part) int { return strings.Compare(a.path, b.path) })
	for _, p := range parts {
		if !slices.ContainsFunc(p.files, func(f file) bool { return grants.MatchString(filepath.Base(f.name)) }) {
			return nil, fmt.Errorf("%s %s has no licence: a program with it may not be passed on", p.path, p.version)
		}
	}

	return parts, nil
}

func goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the programs are built
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// grants are the files that give a right, and notices those that have to be passed on with
// it.
var (
	grants  = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)`)
	notices = regexp.MustCompile(`(?i)^(notice|patents|copyright)`)
)

// collect adds the files of a package's folder and of all above it, up to root.
func (p *part) collect(root, dir string) error {
	for {
		inside, err := filepath.Rel(root, dir)
		if err != nil || !filepath.IsLocal(inside) {
			return fmt.Errorf("%s is not in %s, where %s is", dir, root, p.path)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(inside, e.Name())
			if !e.Type().IsRegular() || strings.HasSuffix(name, ".go") || !grants.MatchString(e.Name()) && !notices.MatchString(e.Name()) {
				continue
			}
			if slices.ContainsFunc(p.files, func(f file) bool { return f.name == name }) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			p.files = append(p.files, file{name, strings.Trim(string(text), "\r\n")})
		}
		if inside == "." {
			slices.SortFunc(p.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

const line = "--------------------------------------------------------------------------------"

// write writes all parts, and each text once.
func write(w io.Writer, parts []part) {
	fmt.Fprint(w, "capgpu is Copyright The capgpu authors, and licensed under the Apache License, Version\n"+
		"2.0: the files LICENSE and NOTICE. Its programs are linked with these modules of others:\n\n")
	for _, p := range parts {
		fmt.Fprintf(w, "    %s %s\n", p.path, p.version)
	}

	fmt.Fprint(w, "\nTheir licences, and their words on copyright, follow.\n")
	var texts []string
	of := map[string][]string{}
	for _, p := range parts {
		for _, f := range p.files {
			if of[f.text] == nil {
				texts = append(texts, f.text)
			}
			of[f.text] = append(of[f.text], fmt.Sprintf("%s %s: %s", p.path, p.version, f.name))
		}
	}

	for _, text := range texts {
		fmt.Fprintf(w, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(of[text], "\n"), line, text)
	}
}
