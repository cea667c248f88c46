#!/usr/bin/env bash
# build.sh DIR COMMAND...: builds cmd/COMMAND into DIR, static, and makes sure
# that it is: the commands must start where there is no C library.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
mkdir -p "$dir"
revision=$(git describe --always --dirty 2>/dev/null || true) # not a checkout: unknown
for c in "$@"; do
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-X capgpu/internal/cmdline.revision=$revision" -o "$dir/$c" "./cmd/$c"
	if ldd "$dir/$c" >/dev/null 2>&1; then # ldd fails on a static binary
		echo "$dir/$c is not static: something it imports links dynamically" >&2
		exit 1
	fi
	echo "$dir/$c"
done
