# Sourced by test.sh and test-nightly.sh: what both have, and how it is built.
. tools/section.sh

if [[ ${CI:-} == true ]]; then
	export CAPGPU_REQUIRE_CXX=1
fi

export CAPGPU_REQUIRE_VM=1 # install-deps.sh has seen to it

# All that is built is built in as few ways as can be: as the installed commands are (that
# is why what runs without the race detector has CGO_ENABLED=0), and with the race detector.
# Otherwise each package is compiled twice more, for tests that build commands of their own.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS

# A program with the race detector waits a second at its end for races that are not
# reported yet. Ours end when all that they started has ended (internal/leakcheck).
export GORACE="atexit_sleep_ms=20 ${GORACE:-}"

build() { tools/build.sh bin device-manager gpu-service gpu-mock gpu-gate gpuctl gpu-engine-launch model-server gpu-engine-vulkan; }

# Packages without goroutines of their own to race, or that only start processes built
# without the detector.
plain='^capgpu/(cmd/gpuctl/npy|conformance|internal/(archtest|cmdline|crashpoint|crashtest)|model/(chat|gguf|llama2c|modeltest|quant|safetensors|sample|synth|tokenizer)|packaging|program/(instrument|lane|library|native|spirv|verify)|qemu|ring/model|schema)(/|$)'

# The manager's tests mostly wait, and longest: they begin first, and others run beside
# them.
with_race() { { echo capgpu/manager && go list ./... | grep -vE "$plain|^capgpu/manager$"; } | xargs tools/gotest.sh -race -p=$(($(nproc) + 1)); }

# The packages in plain, and those whose tests do less with the race detector than without:
# they have a file race_test.go that tells them which it is. More packages may be named.
without_race() {
	{
		go list ./... | grep -E "$plain" | grep -v '^capgpu/qemu'
		git ls-files --cached --others --exclude-standard -- '*/race_test.go' ':!bench' |
			sed 's|^|capgpu/|; s|/race_test.go$||' | grep -vE "$plain"
		printf '%s\n' "$@"
	} | CGO_ENABLED=0 xargs tools/gotest.sh
}

# The figures themselves are for "make bench" and "make bench-kernels": a test cannot
# hold them. One package at a time: beside an attack, a device that is the processor is reset
# for want of that, and a neighbour's work with it.
bench() { (cd bench && CGO_ENABLED=0 ../tools/gotest.sh -p=1 "$@" ./kernels/... ./dataplane/... ./clients/... ./attack/... ./residue/...); }

# Engine processes, without their devices: the suite of devices is oracle.sh's.
engine() { (cd engine && CGO_ENABLED=0 ../tools/gotest.sh "$@" ./...); }

# The guests run one at a time. Each has a bound of its own; that of all leaves room for
# them to be run again.
guests() { CGO_ENABLED=0 go test -vet=off -count=1 -timeout=90m -v "$@" ./qemu/...; }
