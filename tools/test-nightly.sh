#!/usr/bin/env bash
# All that test.sh and lint.sh run, whole, and what takes too long for every commit: the
# guests that are broken on purpose, a browser, engines that are not ours, fuzzing, and the
# campaigns, each with other seeds than the night before. A stage that fails ends nothing:
# the last lines name those that did.
#
# SEED=N repeats a night. MINUTES=20 of fuzzing, SEEDS=5000 of the simulation and KILLS=300
# are how much there is of each.
set -euo pipefail
cd "$(dirname "$0")/.."
export CI=${CI:-true} CAPGPU_REQUIRE_BROWSER=1 CAPGPU_HW_KILLS=100
. tools/stages.sh
seed=${SEED:-$(date +%s)}
echo "make test-nightly SEED=$seed repeats this"

# The tests of test.sh that can do more than they do there, and the packages whose tests are
# the same with the race detector, at the pace that they have without it.
longer() {
	CAPGPU_SEED=$seed CAPGPU_DIFFERENTIAL=5e7 CAPGPU_WAKES=1e6 CAPGPU_MUTANTS=20000 \
		CAPGPU_HOSTILE=200000 CAPGPU_HOSTILE_FROM=${seed}000 LANE_SEED=$seed LANE_RANDOM=2000 \
		INSTRUMENT_SEED=$seed INSTRUMENT_RANDOM=10000 \
		VERIFY_SEED=$seed VERIFY_MUTANTS=25000 VERIFY_GRAPHS=50000 VERIFY_BOUNDS=1 \
		CAPGPU_KERNEL_CASES=300 CAPGPU_LONG=1 CAPGPU_CONFORMANCE_FULL=1 \
		TIMEOUT=1h without_race capgpu/gpu capgpu/ledger capgpu/internal/revoke
}

# Mistakes in the real code, which the simulation has to find.
patches() { CAPGPU_SIM_PATCHES=1 CGO_ENABLED=0 tools/gotest.sh -count=1 -timeout=1h ./sim -run '^TestPatchesAreFound$'; }

wasm() { (cd examples/zing/wasm && CGO_ENABLED=0 go test -count=1 ./...); }

campaign() { make --no-print-directory "$@"; }

stage "packages" tools/install-deps.sh test vm browser oracle
stage "build" build
stage "lint" tools/lint.sh
stage "unit tests with the race detector" with_race
stage "the rest, and full sizes, without it, at length" longer
stage "bench, with a browser" bench
stage "engine" engine -skip '^(TestDevice|TestBackend)$'
stage "a WebAssembly guest" wasm
stage "other engines" campaign oracle
stage "virtual machines, and what they have to notice" guests
stage "fuzzing" campaign fuzz MINUTES="${MINUTES:-20}"
stage "fuzzing conversations" campaign fuzz-firewall SECONDS=60
stage "simulation" campaign sim SEEDS="${SEEDS:-5000}" FIRST="$seed"
stage "what the simulation has to find" patches
stage "crash campaign" campaign crash-campaign SEED="$seed"
stage "kill campaign" campaign kill-campaign KILLS="${KILLS:-300}" SEED="$seed"
stage "attack" campaign attack SECONDS=60 SEED="$seed"
stage "soak" campaign soak MINUTES=10 SEED="$seed"
stages_ended
echo "the night passed in $SECONDS s"
