// Command kerneldump prints a random kernel's GLSL: kerneldump SEED
// [subgroup|shuffle|wide|narrow|survey]...
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"capgpu/bench/kernelgen"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kerneldump SEED [subgroup|shuffle|wide|narrow|survey]...")
		os.Exit(2)
	}

	seed, err := strconv.ParseUint(os.Args[1], 0, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}

	has := func(word string) bool { return slices.Contains(os.Args[2:], word) }
	o := kernelgen.Options{
		Subgroup: has("subgroup"), Shuffle: has("shuffle"), Wide: has("wide"), Narrow: has("narrow"),
	}

	if has("survey") {
		o.Survey = int(seed)
	}

	k := kernelgen.Generate(seed, o)
	fmt.Printf("// block %v grid %v\n%s", k.Block, k.Grid, k.Source())
}
