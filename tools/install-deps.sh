#!/usr/bin/env bash
# Makes sure that what the named groups need is there: "go", "vm" (the smoke
# guest), "test" (everything the tests use besides the guest), "browser" (Chromium,
# for the model server's page), "oracle" (a Vulkan driver to compare with). Installs
# Debian packages when run by root; otherwise prints the command and stops. Touches apt
# only if something is missing.
set -euo pipefail

packages=()
want() { # want PACKAGE TEST...: the package is needed if the test fails
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || packages+=("$package")
}
have() { command -v "$1"; }

if ! have go >/dev/null; then
	echo "The Go toolchain is missing: install Go 1.26 or newer (https://go.dev/dl/) and put it in PATH." >&2
	exit 1
fi
version=$(go env GOVERSION) # go1.26.8
if [[ ! $version =~ ^go1\.([0-9]+) ]] || ((BASH_REMATCH[1] < 26)); then
	echo "Go 1.26 or newer is needed, this is $version (https://go.dev/dl/)." >&2
	exit 1
fi

want ca-certificates test -e /etc/ssl/certs/ca-certificates.crt # for module downloads
for group in "$@"; do
	case $group in
	go) ;;
	vm)
		if [[ -z ${QEMU:-} ]]; then
			want qemu-system-x86 have qemu-system-x86_64
			want seabios test -e /usr/share/seabios/bios-256k.bin
		fi
		;;
	test)
		want g++ have g++ # also the C compiler that -race needs
		want libc6-dev test -e /usr/include/stdio.h
		want capnproto have capnp
		want libcapnp-dev test -e /usr/include/capnp/rpc-twoparty.h
		want pkg-config have pkg-config
		want glslang-tools have glslangValidator # the kernels of program/library
		want spirv-tools have spirv-val
		;;
	browser) # some 400 MB
		want chromium have chromium
		want fonts-dejavu-core compgen -G '/usr/share/fonts/*/*'
		;;
	oracle)
		want glslang-tools have glslangValidator
		want spirv-tools have spirv-opt
		want libvulkan1 test -e "/usr/lib/$(uname -m)-linux-gnu/libvulkan.so.1"
		want mesa-vulkan-drivers compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json'
		if [[ -n ${CAPGPU_ORACLE_POCL:-} ]]; then # some 300 MB
			want pocl-opencl-icd test -e /etc/OpenCL/vendors/pocl.icd
			want ocl-icd-libopencl1 test -e "/usr/lib/$(uname -m)-linux-gnu/libOpenCL.so.1"
		fi
		;;
	*)
		echo "install-deps.sh: no group $group" >&2
		exit 2
		;;
	esac
done
((${#packages[@]} > 0)) || exit 0

if ! have apt-get >/dev/null; then
	echo "Missing, and there is no apt-get here; install by your own means: ${packages[*]}" >&2
	exit 1
fi
install=(apt-get install -y --no-install-recommends "${packages[@]}")
if ((EUID != 0)); then
	echo "Missing packages. As root: apt-get update && ${install[*]}" >&2
	exit 1
fi
echo "installing: ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
# Lists that are there may do; if not, an error of an unrelated source must not
# stop us, so it is the second install that decides.
if ! "${install[@]}" -q </dev/null >/tmp/capgpu-apt.$$ 2>&1; then
	apt-get update -q </dev/null || echo "apt-get update had errors; trying all the same" >&2
	"${install[@]}" -q </dev/null
fi
rm -f /tmp/capgpu-apt.$$
