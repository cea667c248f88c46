#!/usr/bin/env bash
# The checks of every commit, made for at most twelve minutes on two processors. All else
# is test-nightly.sh's. With CI=true nothing may be skipped for a missing tool.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/stages.sh

section "build" build
section "unit tests with the race detector" with_race
section "the rest, and full sizes, without it" without_race
section "bench" bench -skip '^TestPage$'
section "engine" engine -skip '^(TestDevice|TestBackend)$'
section "virtual machines" guests -skip '^(TestSmokeGuestFailsWhenItShould|TestHardwareGuestFailsWhenItShould|TestHardwareBench)$'
echo "all tests passed in $SECONDS s; \"make test-nightly\" runs those that take longer"
