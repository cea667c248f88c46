#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZTIME (default 3s) each.
# With arguments: only the targets of those packages.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-3s}

packages=("$@")
if ((${#packages[@]} == 0)); then
	mapfile -t packages < <(go list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r dir path; do
		if grep -lqE '^func Fuzz' "$dir"/*_test.go 2>/dev/null; then echo "$path"; fi
	done)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
for package in "${packages[@]}"; do
	for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		count=$((count + 1))
		for attempt in 1 2; do
			if go test -run='^$' -fuzz="^$target\$" -fuzztime="$fuzztime" "$package" >"$log" 2>&1; then
				printf '%s %s: %s\n' "$package" "$target" "$(grep -E '^fuzz: elapsed' "$log" | tail -n1)"
				break
			fi
			# When the time is up in the middle of an input, the go command can
			# report that as a failure of the target (golang.org/issue/75804). A real
			# one leaves an input behind.
			if ((attempt == 1)) && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
				continue
			fi
			cat "$log" >&2
			echo "$package $target failed" >&2
			exit 1
		done
	done
done
echo "$count fuzz targets"
((count > 0))
