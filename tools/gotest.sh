#!/usr/bin/env bash
# go test, with each package's line, all of what failed, and every skipped test
# with its reason, so that nothing is left out unseen. Vet is lint.sh's. The compiler
# collects its garbage less often than by default; the tests do as ever. TIMEOUT (8m) is
# for the tests of one package.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
GOGC=400 go test -v -vet=off -timeout="${TIMEOUT:-8m}" -exec "env -u GOGC" "$@" >"$log" 2>&1 || status=$?
grep -E '^(ok|FAIL|\?)[[:space:]]' "$log" | grep -v 'no test files' || true
if ((status)); then
	# A failed test's lines follow its "--- FAIL" in the log, or precede it after "=== RUN".
	awk '
		/^=== (RUN|CONT|NAME)/ { name = $3; next }
		/^=== / { next }
		/^ *--- (PASS|SKIP)/ { delete said[$3]; next }
		/^ *--- FAIL/ { print; printf "%s", said[$3]; delete said[$3]; failed = 1; next }
		/^(panic|fatal error|WARNING: DATA RACE|SIG|# |FAIL)/ { loud = 1 }
		/^(ok|PASS)/ { loud = 0; next }
		loud { print; next }
		{ said[name] = said[name] $0 "\n" }
	' "$log" | head -n 400
fi
skips=$(grep -cE '^ *--- SKIP' "$log" || true)
if ((skips)); then
	echo "$skips skipped:"
	awk '
		/^=== (RUN|CONT|NAME)/ { name = $3; next }
		/^ *--- SKIP/ { print "  " $3 ": " why[$3]; next }
		/^ *[A-Za-z0-9_]+\.go:[0-9]+: / { sub(/^ *[^ ]+: /, ""); why[name] = $0 }
	' "$log"
fi
exit "$status"
