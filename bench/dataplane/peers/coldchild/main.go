// Command coldchild is the smallest Go program that reports that it runs: by one
// byte.
package main

import "os"

func main() {
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		os.Exit(1)
	}
}
