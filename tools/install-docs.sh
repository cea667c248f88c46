#!/usr/bin/env bash
# install-docs.sh FOLDER: puts README.md, SPECIFICATION.md and docs/ there, with every file
# of this repository that they link to, all in their places: so their links hold.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
to=${1:?usage: install-docs.sh FOLDER}
declare -A done
files=(README.md SPECIFICATION.md docs/*.md docs/*.svg)
while [ ${#files[@]} -gt 0 ]; do
	file=${files[0]}
	files=("${files[@]:1}")
	[ -z "${done[$file]:-}" ] || continue
	done[$file]=1
	install -D -m 644 "$file" "$to/$file"
	[ "${file##*.}" = md ] || continue
	while read -r link; do
		target=$(realpath -m --relative-to=. "$(dirname "$file")/$link")
		[[ $target == ../* || ! -f $target ]] || files+=("$target") # nothing from outside
	done < <(grep -oE '\]\([^)# ]+' "$file" | cut -c3- | grep -v '://' || true)
done
