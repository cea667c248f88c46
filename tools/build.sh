#!/usr/bin/env bash
# build.sh DIR COMMAND...: builds cmd/COMMAND into DIR, static, and makes sure
# that it is: the commands must start where there is no C library. With VERSION=v0.1.0
# they say that they are that release, else which commit they are of. Commands of the module
# engine open libraries at run time: they alone are not static.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
shift
version=${VERSION:-}
if [[ -n $version && ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "VERSION=$version is no version; v0.1.0 is one, and v0.1.0-rc.1" >&2
	exit 1
fi
vcs=true
git rev-parse --verify HEAD >/dev/null 2>&1 || vcs=false # not a checkout, or another user's: unknown
mkdir -p "$dir"
for c in "$@"; do
	module=.
	[[ ! -d engine/cmd/$c ]] || module=engine
	CGO_ENABLED=0 go -C "$module" build -trimpath -buildvcs=$vcs -ldflags "-X capgpu/internal/cmdline.release=$version" -o "$(realpath "$dir")/$c" "./cmd/$c"
	if [[ $module == . ]] && ldd "$dir/$c" >/dev/null 2>&1; then # ldd fails on a static binary
		echo "$dir/$c is not static: something it imports links dynamically" >&2
		exit 1
	fi
	echo "$dir/$c"
done
