#!/usr/bin/env bash
# Fuzzes for SECONDS in all, shared among the targets, and prints what came of each:
#
#	tools/fuzz.sh SECONDS [PACKAGE:TARGET...]    without targets: all that there are
#
# The last line is the sum. What a target finds is left under its testdata/fuzz, like
# any other input that its test then runs; the exit status is then 1. What it has
# learnt stays in Go's cache (go env GOCACHE) and serves the next time.
#
# The time is that of fuzzing: the tests are built before. Only our own packages are
# instrumented, for Go's engine looks at every counter of the binary after each
# execution, and with those of all packages one takes five times as long. ALL=1
# instruments all, for readers that leave much to the standard library (JSON).
#
# A worker runs one input after the other, each in a goroutine of its own, so it has one
# processor: with more, their schedulers wake and look for each other. A new input is
# made smaller with 100 executions at most: where coverage is not the same twice (the
# code under test has goroutines) the engine would otherwise do nothing else.
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
each=$((1000 * seconds / ${#targets[@]})) # milliseconds
((each > 0)) || each=1
instrument='-gcflags=capgpu/...=-d=libfuzzer'
[[ -z ${ALL:-} ]] || instrument='-fuzz=.'

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
log=$built/log cache=$(go env GOCACHE)/fuzz
for name in "${targets[@]}"; do
	package=${name%:*}
	[[ -e $built/${package//\//,} ]] || CGO_ENABLED=0 go test -c -vet=off "$instrument" -o "$built/${package//\//,}" "$package"
done

total=0 found=0 crashes=0
printf '%-58s %12s %6s %s\n' target executions new crashes
for name in "${targets[@]}"; do
	package=${name%:*} target=${name##*:} bad=0
	read -r dir path < <(go list -f '{{.Dir}} {{.ImportPath}}' "$package")
	for attempt in 1 2; do
		if (cd "$dir" && GOMAXPROCS=1 "$built/${package//\//,}" -test.run='^$' -test.fuzz="^$target\$" \
			-test.fuzztime="${each}ms" -test.fuzzminimizetime=100x -test.parallel="$(nproc)" \
			-test.fuzzcachedir="$cache/$path") >"$log" 2>&1; then
			break
		fi
		# See fuzz-each.sh: the end of the time is no failure.
		if ((attempt == 1)) && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			continue
		fi
		bad=1
		cat "$log" >&2
		break
	done
	if grep -q 'not built with coverage' "$log"; then
		echo "$target runs without coverage: nothing guides it" >&2
		bad=1
	fi
	execs=$(sed -nE 's/^fuzz: elapsed: .*execs: ([0-9]+).*/\1/p' "$log" | tail -n1)
	new=$(sed -nE 's/^fuzz: elapsed: .*new interesting: ([0-9]+).*/\1/p' "$log" | tail -n1)
	printf '%-58s %12d %6d %d\n' "$name" "${execs:-0}" "${new:-0}" "$bad"
	total=$((total + ${execs:-0})) found=$((found + ${new:-0})) crashes=$((crashes + bad))
done
echo "${#targets[@]} targets, $total executions, $found new inputs, $crashes crashes"
((crashes == 0))
