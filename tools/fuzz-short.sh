#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZTIME (default 1s) each.
# With arguments: only the targets of those packages. What is interesting is kept
# where `go test -fuzz` keeps it, so one run begins where the last one ended.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-1s}

packages=("$@")
if ((${#packages[@]} > 0)); then
	mapfile -t packages < <(go list "${packages[@]}")
else
	mapfile -t packages < <(go list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r dir path; do
		if grep -lqE '^func Fuzz' "$dir"/*_test.go 2>/dev/null; then echo "$path"; fi
	done)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz
count=0
for package in "${packages[@]}"; do
	# One instrumented binary per package, as `go test -fuzz` would build for each target.
	go test -c -fuzz=. -o "$work/test" "$package"
	dir=$(go list -f '{{.Dir}}' "$package")
	for target in $(cd "$dir" && "$work/test" -test.list '^Fuzz' | grep '^Fuzz' || true); do
		count=$((count + 1))
		for attempt in 1 2; do
			if (cd "$dir" && "$work/test" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$fuzztime" -test.fuzzcachedir="$cache/$package") >"$work/log" 2>&1; then
				printf '%s %s: %s\n' "$package" "$target" "$(grep -E '^fuzz: elapsed' "$work/log" | tail -n1)"
				break
			fi
			# When the time is up in the middle of an input, that can be reported as a
			# failure of the target (golang.org/issue/75804). A real one leaves an input
			# behind.
			if ((attempt == 1)) && grep -q 'context deadline exceeded' "$work/log" && ! grep -q 'Failing input written' "$work/log"; then
				continue
			fi
			cat "$work/log" >&2
			echo "$package $target failed" >&2
			exit 1
		done
	done
done
echo "$count fuzz targets"
((count > 0))
