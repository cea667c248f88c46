#!/usr/bin/env bash
# Keeps of what fuzzing has learnt (Go's cache) the smallest inputs of each target as its
# committed corpus: at most KEEP (24) files of at most BYTES (2048) bytes in all that are
# not there yet, in testdata/fuzz of the package, from where every test run takes them.
set -euo pipefail
cd "$(dirname "$0")/.."
keep=${KEEP:-24} bytes=${BYTES:-2048}
cache=$(go env GOCACHE)/fuzz/capgpu
count=0
while read -r from; do
	target=${from##*/} package=${from%/*}
	package=${package#"$cache/"}
	grep -qE "^func $target\b" "$package"/*_test.go 2>/dev/null || continue # it is gone
	to=$package/testdata/fuzz/$target
	mkdir -p "$to"
	have=$(find "$to" -type f | wc -l)
	while read -r _ file; do
		((have < keep)) || break
		[[ -e $to/${file##*/} ]] && continue
		cp "$file" "$to/"
		have=$((have + 1)) count=$((count + 1))
	done < <(find "$from" -type f -size -"$((bytes + 1))"c -printf '%s %p\n' | sort -n)
	rmdir --ignore-fail-on-non-empty "$to"
done < <(find "$cache" -type d -name 'Fuzz*' | sort)
echo "$count inputs are new"
