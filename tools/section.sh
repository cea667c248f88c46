# Sourced. `section TITLE COMMAND...` runs a part of a longer run, says how long it took and
# how much processor time, and ends the run when the part fails. `stage` does the same, but
# goes on after a failure, and `stages_ended` ends the run, with a failure if one failed.
failed=()

# processor prints the processor time of all that this shell has waited for, in seconds.
processor() {
	local fields
	read -r -a fields </proc/$$/stat
	echo $(((fields[15] + fields[16]) / $(getconf CLK_TCK)))
}

part() {
	local title=$1 start=$SECONDS used
	used=$(processor)
	shift
	printf '\n=== %s\n' "$title"
	if ! "$@"; then
		printf '=== %s: FAILED after %d s\n' "$title" $((SECONDS - start)) >&2
		return 1
	fi
	printf '=== %s: ok, %d s, %d s of processor time\n' "$title" $((SECONDS - start)) $(($(processor) - used))
}

section() { part "$@" || exit 1; }

stage() { part "$@" || failed+=("$1"); }

stages_ended() {
	if ((${#failed[@]} > 0)); then
		printf '\nfailed after %d s:\n' "$SECONDS" >&2
		printf '  %s\n' "${failed[@]}" >&2
		exit 1
	fi
}
