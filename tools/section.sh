# Sourced: `section TITLE COMMAND...` runs a part of a longer run, says how long
# it took, and ends the run when the part fails.
section() {
	local title=$1 start=$SECONDS
	shift
	printf '\n=== %s\n' "$title"
	if ! "$@"; then
		printf '=== %s: FAILED after %d s\n' "$title" $((SECONDS - start)) >&2
		exit 1
	fi
	printf '=== %s: ok, %d s\n' "$title" $((SECONDS - start))
}
