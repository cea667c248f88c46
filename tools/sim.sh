#!/bin/bash
# Simulates the whole service (package sim): SEEDS seeds from FIRST on, or the one of SEED
# with its trace. The simulation is a test, because virtual time is; so it is built as one.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .cache
${GO:-go} test -c -o .cache/sim.test ./sim
CAPGPU_SIM_SEEDS="${SEEDS:-2000}" CAPGPU_SIM_FIRST="${FIRST:-0}" CAPGPU_SIM_SEED="${SEED:-}" \
	.cache/sim.test -test.run '^TestSweep$' -test.timeout 0
