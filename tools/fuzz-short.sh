#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZTIME (default 1s) each, as many at
# once as there are processors. With arguments: only the targets of those packages. What
# is interesting is kept in Go's cache, so one run begins where the last one ended.
#
# Only our own packages are instrumented: see fuzz.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
FUZZTIME=${FUZZTIME:-1s} FUZZCACHE=$(go env GOCACHE)/fuzz-short
export FUZZTIME FUZZCACHE

packages=("$@")
if ((${#packages[@]} == 0)); then
	mapfile -t packages < <(git grep -lE --untracked '^func Fuzz' -- '*_test.go' ':!bench' | xargs -n1 dirname | sort -u | sed 's|^|./|')
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
CGO_ENABLED=0 go test -v -vet=off -count=1 -gcflags='capgpu/...=-d=libfuzzer' -exec "$PWD/tools/fuzz-each.sh" "${packages[@]}" | tee "$log"
count=$(grep -c '^Fuzz.*: fuzz: elapsed' "$log" || true)
echo "$count fuzz targets"
((count > 0))
