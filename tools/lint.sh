#!/usr/bin/env bash
# Formatting, vet, staticcheck and checklocks. The tools are pinned in
# tools/go.mod, apart from the product's own modules.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/section.sh

# As test.sh builds, so that what has been compiled there serves here. Nothing of ours
# has C.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS CGO_ENABLED=0

formatted() {
	local bad
	bad=$(git ls-files -co --exclude-standard -- '*.go' | xargs -r gofmt -l) || return 1
	[[ -z $bad ]] || { printf 'gofmt -w these:\n%s\n' "$bad" >&2; return 1; }
}
vetted() { go vet ./... && (cd bench && go vet ./...) && (cd engine && go vet ./...) && (cd examples/zing/wasm && go vet ./...) && (cd tools && go vet ./mutate); }
checklocks() {
	go build -modfile=tools/go.mod -o .tools/checklocks gvisor.dev/gvisor/tools/checklocks/cmd/checklocks &&
		go vet -vettool="$PWD/.tools/checklocks" -inferred=false ./... &&
		go -C engine vet -vettool="$PWD/.tools/checklocks" -inferred=false ./...
}

section "gofmt" formatted
section "vet" vetted
section "staticcheck" go tool -modfile=tools/go.mod staticcheck ./...
section "checklocks" checklocks
