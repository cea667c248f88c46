// Package library has the kernels that every device is expected to have, as
// bundles: what language models need, and some to try a device with.
// docs/kernels.md describes them.
//
// A kernel is three files: NAME.comp is its source (GLSL; the .glsl files are shared
// parts), NAME.spv the module that `make kernels` made of it, and NAME.json the
// manifest. The module and the manifest are in the executable; the source is for
// people. A bundle's digest changes with every byte of either, and fast bodies
// (program/native) are found by it.
//
// All kernels guarantee this: the workgroups of a launch share the work whatever
// their number, so every grid covers everything. Sizes that do not fit the bindings
// are an out-of-range access of the binding that is too short, before anything is
// written; they are detected without overflow. Elements beyond the sizes stay
// unchanged.
package library

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"capgpu/program"
)

//go:embed *.spv *.json
var files embed.FS

type entry struct {
	bundle []byte
	digest [32]byte
}

// bundles makes all bundles, once: some hundred microseconds.
var bundles = sync.OnceValues(func() ([]string, map[string]entry) {
	list, err := files.ReadDir(".")
	must(err)
	var names []string
	all := map[string]entry{}
	for _, f := range list {
		name, isManifest := strings.CutSuffix(f.Name(), ".json")
		if !isManifest {
			continue
		}

		text, err := files.ReadFile(f.Name())
		must(err)
		module, err := files.ReadFile(name + ".spv")
		must(err)
		manifest, refusal := program.ParseManifest(text)
		if refusal != nil {
			must(fmt.Errorf("%s: %w", f.Name(), refusal))
		}

		bundle, err := program.Encode(module, manifest)
		must(err)
		names = append(names, name)
		all[name] = entry{bundle, sha256.Sum256(bundle)}
	}

	slices.Sort(names)
	return names, all
})

// must is for facts about the embedded files that the package's test has checked.
func must(err error) {
	if err != nil {
		panic("library: " + err.Error())
	}
}

// Names are the kernels, sorted. The caller owns the list.
func Names() []string {
	names, _ := bundles()
	return slices.Clone(names)
}

// Bundle is the canonical bundle of a kernel. It is shared: nobody may write to it.
func Bundle(name string) ([]byte, bool) {
	_, all := bundles()
	e, ok := all[name]
	return e.bundle, ok
}

// Digest is the SHA-256 of the kernel's bundle.
func Digest(name string) ([32]byte, bool) {
	_, all := bundles()
	e, ok := all[name]
	return e.digest, ok
}
