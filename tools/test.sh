#!/usr/bin/env bash
# Every test. With CI=true nothing may be skipped for a missing tool, and the
# fuzzing of the Cap'n Proto firewall runs for a minute instead of seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/section.sh

if [[ ${CI:-} == true ]]; then
	export CAPGPU_REQUIRE_CXX=1 CAPGPU_FUZZ_SECONDS=${CAPGPU_FUZZ_SECONDS:-60}
fi

export CAPGPU_REQUIRE_VM=1 # install-deps.sh has seen to it

# The guest has the machine to itself, after the rest.
unit() { go list ./... | grep -v '^capgpu/qemu' | xargs tools/gotest.sh -race; }

# What the race detector would make too slow, or cannot count: full sizes, and
# that nothing is allocated.
full() { tools/gotest.sh ./ring ./client ./gpu ./gpu/backend/mock ./ledger ./internal/revoke ./cmd/gpuctl ./program/library; }

section "build" tools/build.sh bin device-manager gpu-service gpu-mock gpu-gate gpuctl
section "vet" go vet ./...
section "unit tests with the race detector" unit
section "full sizes, without it" full
section "fuzzing, a few seconds each" tools/fuzz-short.sh
section "smoke guest" go test -count=1 -timeout=10m -v ./qemu/...
echo
echo "all tests passed in $SECONDS s"
