#!/usr/bin/env bash
# Every test. With CI=true nothing may be skipped for a missing tool. What is long has
# a target of its own in the Makefile, which README.md lists. With GUESTS_ALONE=1 the
# virtual machines have the processors to themselves, which takes some minutes longer.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/section.sh

if [[ ${CI:-} == true ]]; then
	export CAPGPU_REQUIRE_CXX=1 CAPGPU_REQUIRE_BROWSER=1
fi

export CAPGPU_REQUIRE_VM=1 # install-deps.sh has seen to it

# All that is built is built in as few ways as can be: as the installed commands are,
# and with the race detector. Without these two lines each package is compiled twice
# more, for those who build commands of their own.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS

# A program with the race detector waits a second at its end for races that nobody has
# told yet. Ours end when all that they started has ended (internal/leakcheck).
export GORACE="atexit_sleep_ms=20 ${GORACE:-}"

# What CI lacks is installed first, so that nothing is installed beside tests.
if [[ ${CI:-} == true ]]; then
	section "packages" tools/install-deps.sh browser oracle
fi

# What has no goroutines of its own to race, or only starts processes that are built
# without the detector.
plain='^capgpu/(conformance|internal/(archtest|crashpoint|crashtest)|model/tokenizer|program/(lane|library|native|spirv|verify)|qemu)(/|$)'

# The manager's tests mostly wait, and longest: they begin first, and others run beside
# them.
unit() { { echo capgpu/manager && go list ./... | grep -vE "$plain|^capgpu/manager$"; } | xargs tools/gotest.sh -race -p=$(($(nproc) + 1)); }

# The others, and what the race detector would make too slow, or cannot count: full
# sizes, and that nothing is allocated.
full() {
	go list ./... | grep -E "$plain" | grep -v '^capgpu/qemu' |
		CGO_ENABLED=0 xargs tools/gotest.sh ./ring ./client ./gpu ./gpu/gputest/difftest ./gpu/backend/mock ./ledger ./internal/revoke ./internal/benchtest ./cmd/gpuctl ./model/llama
}

# The figures themselves are for "make bench" and "make bench-kernels": a test cannot
# hold them.
bench() {
	(cd bench && ../tools/gotest.sh ./kernels/... ./dataplane/... ./clients/... ./attack/... ./residue/...)
}

# Engines that are not ours are large to install, so only CI does that unasked.
engines() {
	if [[ ${CI:-} == true ]] || compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' >/dev/null; then
		make --no-print-directory oracle
	else
		echo "SKIPPED: there is no lavapipe here to compare with; \"make oracle\" installs it and does"
	fi
}

# The guests wait for their devices' timers as long as they compute, one at a time, and
# so do many of the tests after the units': they run beside each other. What the guests
# print comes when both are done. Each guest has a bound of its own; that of all leaves
# room for what the others take of the processors.
guests=
log=$(mktemp)
finish() {
	if [[ -n $guests ]]; then
		kill -TERM -- "-$guests" 2>/dev/null || true # all of its session
	fi
	rm -f "$log"
}
trap finish EXIT
begin_guests() {
	CGO_ENABLED=0 setsid go test -vet=off -count=1 -timeout=40m -v ./qemu/... >"$log" 2>&1 &
	guests=$!
}
end_guests() {
	local status=0
	wait "$guests" || status=$?
	guests=
	cat "$log"
	return "$status"
}

section "build" tools/build.sh bin device-manager gpu-service gpu-mock gpu-gate gpuctl model-server
section "unit tests with the race detector" unit
if [[ ${GUESTS_ALONE:-} != 1 ]]; then
	begin_guests
fi
section "the rest, and full sizes, without it" full
section "fuzzing, a second each" tools/fuzz-short.sh
section "bench" bench
section "other engines" engines
if [[ -z $guests ]]; then
	begin_guests
fi
section "virtual machines" end_guests
echo "all tests passed in $SECONDS s"
