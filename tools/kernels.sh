#!/usr/bin/env bash
# Compiles the kernels of program/library, each .comp to a .spv, into the folder
# given (program/library itself if none is, and those of the examples and of tests as well). The modules keep the names of the
# source (OpName) and no lines. Committed are those of the compiler that
# program/library/VERSION names: another version's differ in bytes, and every
# bundle's digest with them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
library=$root/program/library
out=${1:-$library}

compiler() { glslangValidator --version | sed -n 's/^Glslang Version: //p'; }

if [[ -z ${1:-} ]]; then
	have=$(compiler)
	want=$(<"$library/VERSION")
	if [[ $have != "$want" && -z ${NEW_COMPILER:-} ]]; then
		echo "kernels.sh: this is glslang $have, the kernels are from $want." >&2
		echo "Every digest would change. NEW_COMPILER=1 makes it the new one." >&2
		exit 1
	fi
	echo "$have" >"$library/VERSION"
fi
for source in "$library"/*.comp; do
	name=$(basename "$source" .comp)
	# In the folder of the source: the path is then no part of a message.
	(cd "$library" && glslangValidator -V --target-env vulkan1.1 -o "$out/$name.spv.new" "$name.comp") >"$out/$name.log" || {
		cat "$out/$name.log" >&2
		rm -f "$out/$name.log"
		exit 1
	}
	rm "$out/$name.log"
	mv "$out/$name.spv.new" "$out/$name.spv"
done
if [[ -z ${1:-} ]]; then
	for source in "$root"/examples/*/*.comp "$root"/gpu/backend/engine/host/devicetest/*.comp "$root"/engine/vulkan/kernels/*.comp; do
		glslangValidator -V --target-env vulkan1.1 -o "${source%.comp}.spv" "$source" >/dev/null
	done
fi
