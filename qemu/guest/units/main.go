// Command units runs test binaries in a guest, one after another: each folder of /units has
// one, "test", with the lines of the file "args" as its arguments. It ends with status 1 if
// any of them failed.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	status := 0
	dirs, err := filepath.Glob("/units/*")
	if err != nil || len(dirs) == 0 {
		fmt.Println("units: nothing to run:", err)
		os.Exit(1)
	}

	for _, dir := range dirs { // sorted by Glob
		args, err := os.ReadFile(filepath.Join(dir, "args"))
		if err != nil {
			fmt.Println("units:", err)
			os.Exit(1)
		}
		fmt.Printf("=== UNIT %s\n", filepath.Base(dir))
		cmd := exec.Command(filepath.Join(dir, "test"), strings.Fields(string(bytes.TrimSpace(args)))...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stdout
		start := time.Now()
		err = cmd.Run()
		fmt.Printf("=== TOOK %v\n", time.Since(start).Round(100*time.Millisecond))
		if err != nil {
			fmt.Printf("=== UNIT %s FAILED: %v\n", filepath.Base(dir), err)
			status = 1
		}
	}

	os.Exit(status)
}
