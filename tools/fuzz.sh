#!/usr/bin/env bash
# Fuzzes for SECONDS in all, shared among the targets, and prints what came of each:
#
#	tools/fuzz.sh SECONDS [PACKAGE:TARGET...]    without targets: all that there are
#
# The last line is the sum. What a target finds is left under its testdata/fuzz, like
# any other input that its test then runs; the exit status is then 1. What it has
# learnt stays in Go's cache (go env GOCACHE) and serves the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?tools/fuzz.sh SECONDS [PACKAGE:TARGET...]}
shift
targets=("$@")
if ((${#targets[@]} == 0)); then
	while read -r dir path; do
		for target in $(grep -hoE '^func Fuzz\w+' "$dir"/*_test.go 2>/dev/null | cut -c6-); do
			targets+=("$path:$target")
		done
	done < <(go list -f '{{.Dir}} {{.ImportPath}}' ./...)
fi
((${#targets[@]} > 0)) || { echo "no fuzz targets" >&2; exit 1; }
each=$((seconds / ${#targets[@]}))
((each > 0)) || each=1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
total=0 found=0 crashes=0
printf '%-58s %12s %6s %s\n' target executions new crashes
for name in "${targets[@]}"; do
	package=${name%:*} target=${name##*:} bad=0
	for attempt in 1 2; do
		if go test -run='^$' -fuzz="^$target\$" -fuzztime="${each}s" -fuzzminimizetime=5s "$package" >"$log" 2>&1; then
			break
		fi
		# See fuzz-short.sh: the end of the time is no failure.
		if ((attempt == 1)) && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			continue
		fi
		bad=1
		cat "$log" >&2
		break
	done
	execs=$(sed -nE 's/^fuzz: elapsed: .*execs: ([0-9]+).*/\1/p' "$log" | tail -n1)
	new=$(sed -nE 's/^fuzz: elapsed: .*new interesting: ([0-9]+).*/\1/p' "$log" | tail -n1)
	printf '%-58s %12d %6d %d\n' "$name" "${execs:-0}" "${new:-0}" "$bad"
	total=$((total + ${execs:-0})) found=$((found + ${new:-0})) crashes=$((crashes + bad))
done
echo "${#targets[@]} targets, $total executions, $found new inputs, $crashes crashes"
((crashes == 0))
