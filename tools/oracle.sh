#!/usr/bin/env bash
# Compares our engines with ones that are not ours: the kernels of the library and
# random ones, on lane, native, Mesa's lavapipe and, where it is there, PoCL (random
# ones only; CAPGPU_ORACLE_POCL=1 installs it and insists on it). Some 150 random kernels, or as
# many as 45 s allow; with CAPGPU_ORACLE_LONG=1 for half an hour, from other seeds
# each time. CAPGPU_ORACLE_FROM, _KERNELS, _SECONDS and _CASES (of each library
# kernel) choose otherwise; _KEEP=DIR keeps kernels that differ. Then the Vulkan engine
# runs the suite of devices on the newer lavapipe.
set -euo pipefail
cd "$(dirname "$0")/.."

. tools/lavapipe.sh
fetch_lavapipe
short=(-short)
if [[ -n ${CAPGPU_ORACLE_LONG:-} ]]; then
	export CAPGPU_ORACLE_FROM=${CAPGPU_ORACLE_FROM:-$(date +%s)000}
	export CAPGPU_ORACLE_KERNELS=${CAPGPU_ORACLE_KERNELS:-1000000}
	export CAPGPU_ORACLE_SECONDS=${CAPGPU_ORACLE_SECONDS:-1800}
	export CAPGPU_ORACLE_CASES=${CAPGPU_ORACLE_CASES:-30}
	short=()
	echo "random kernels from seed $CAPGPU_ORACLE_FROM"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
(cd bench && go vet ./vulkan ./opencl ./glsl ./kernelgen ./oracle ./cmd/... &&
	go test -count=1 -v -timeout=3h ./vulkan ./opencl ./glsl ./kernelgen ./oracle) >"$log" 2>&1 || status=$?
(cd engine && CGO_ENABLED=0 go test -count=1 -v -timeout=1h "${short[@]}" ./...) >>"$log" 2>&1 || status=$?
if ((status)); then
	grep -vE '^ *(=== |--- (PASS|SKIP))' "$log" | head -n 600
fi
grep -E '^(ok|FAIL)[[:space:]]|_test\.go:[0-9]+: (oracle: |Mesa |absent: |lane is compared)' "$log" | sed -E 's/^ +[a-z_]+\.go:[0-9]+: /  /' || true
skips=$(grep -cE '^ *--- SKIP' "$log" || true)
((skips == 0)) || { echo "oracle: $skips tests SKIPPED:"; grep -A3 -E '^ *--- SKIP' "$log"; }
exit "$status"
