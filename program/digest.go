package program

import (
	"encoding/hex"
	"strings"
)

// DigestPrefix begins the name of a program that is named by its digest.
const DigestPrefix = "sha256:"

// DigestName is the name of a program by its digest: "sha256:" and 64 lower-case hexadecimal
// digits.
func DigestName(digest [32]byte) string { return DigestPrefix + hex.EncodeToString(digest[:]) }

// ParseDigest reads what DigestName writes, and nothing else.
func ParseDigest(name string) (digest [32]byte, ok bool) {
	digits, ok := strings.CutPrefix(name, DigestPrefix)
	if !ok || len(digits) != 2*len(digest) || strings.ToLower(digits) != digits {
		return digest, false
	}
	_, err := hex.Decode(digest[:], []byte(digits))
	return digest, err == nil
}
