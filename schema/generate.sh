#!/usr/bin/env bash
# Makes zcapos.capnp.go from capos.capnp in this folder, into the folder given.
# Needs Debian's capnproto (0.9.2 or later); capnpc-go is built at the version
# that go.mod pins, so that code and runtime library agree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=$(realpath "${1:?usage: generate.sh OUTDIR}")
command -v capnp >/dev/null || { echo "generate: capnp is missing; apt-get install capnproto" >&2; exit 3; }
module=$(go list -m -f '{{.Dir}}' capnproto.org/go/capnp/v3)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/capnpc-go" capnproto.org/go/capnp/v3/capnpc-go
PATH="$tmp:$PATH" capnp compile --no-standard-import -I"$module/std" -ogo:"$tmp" capos.capnp
mv "$tmp/capos.capnp.go" "$out/zcapos.capnp.go"
