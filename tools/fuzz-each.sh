#!/usr/bin/env bash
# fuzz-each.sh BINARY ...: go test -exec runs it in a package's folder, for fuzz-short.sh.
# Runs each fuzz target of the binary for FUZZTIME, and one line of each is printed.
set -euo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in $("$1" -test.list '^Fuzz' | grep '^Fuzz' || true); do
	for attempt in 1 2 3 4 5; do
		if "$1" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$FUZZTIME" -test.parallel=1 -test.fuzzminimizetime=100x -test.fuzzcachedir="$FUZZCACHE/$PWD" >"$log" 2>&1; then
			break
		fi
		# When the time is up in the middle of an input, that can be reported as a
		# failure of the target (golang.org/issue/75804), several times in a row on a
		# slow host. A real one leaves an input behind.
		if ((attempt < 5)) && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			continue
		fi
		cat "$log"
		echo "$target failed"
		exit 1
	done
	if grep -q 'not built with coverage' "$log"; then
		echo "$target runs without coverage: nothing guides it"
		exit 1
	fi
	printf '%s: %s\n' "$target" "$(grep -E '^fuzz: elapsed' "$log" | tail -n1)"
done
