#!/usr/bin/env bash
# Serves a Vulkan device and watches it: programs of two tenants, a hang of one beside the
# other, the kill of an engine, a language model. Without VULKAN_ICD the device is Mesa's
# lavapipe, from the newer package where the system's is too old (tools/lavapipe.sh). Needs
# the commands in bin (make build).
#
# VULKAN_ICD=FILE names the manifest of another driver, NODES="/dev/a /dev/b" its nodes and
# ADDRESS=0000:01:00.0 its PCI address. MODEL=FILE and TEXT=FILE are a model and the text
# that it must write (64 tokens from nothing).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lavapipe.sh

run=$(mktemp -d)
chmod 0755 "$run" # engines are other users
manager=
server=
cleanup() {
	for pid in $server $manager; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$run"
}
trap cleanup EXIT

checks=0
failed=0
# check TITLE COMMAND...: one line of the report.
check() {
	local title=$1 word=ok
	shift
	checks=$((checks + 1))
	if ! "$@" >"$run/out" 2>&1; then
		word=FAIL
		failed=$((failed + 1))
	fi
	printf '%-4s %2d  %s\n' "$word" "$checks" "$title"
	[[ $word == ok ]] || sed 's/^/         /' "$run/out"
}

libraries='"/lib", "/lib64", "/usr/lib"'
icd=${VULKAN_ICD:-}
if [[ -z $icd ]]; then
	fetch_lavapipe
	library=$(compgen -G "$PWD/.cache/lavapipe/usr/lib/*/libvulkan_lvp.so" | head -n 1) || true
	if [[ -n $library ]]; then
		icd=$run/lavapipe.json
		printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.4.305"}}\n' "$library" >"$icd"
		libraries="\"${library%/*}\", $libraries"
	else
		icd=$(compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' | head -n 1) || {
			echo "there is no Vulkan driver: install mesa-vulkan-drivers" >&2
			exit 1
		}
	fi
fi

nodes=
for node in ${NODES:-}; do nodes+="${nodes:+, }\"$node\""; done
cat >"$run/policy.json" <<-END
	{"functions": [{"kind": "vulkan", "name": "gpu0", "nodes": [$nodes], ${ADDRESS:+"\"address\": \"$ADDRESS\","}
	  "icd": "$icd", "libraries": [$libraries], "memory": "1GiB"}],
	 "tenants": [{"name": "alice", "allowedUids": "any", "facet": "full"}, {"name": "bob", "allowedUids": "any", "facet": "full"}]}
END
bin/device-manager --policy "$run/policy.json" --run-dir "$run/run" --state "$run/state" >"$run/log" 2>&1 &
manager=$!

alice() { bin/gpuctl --socket "$run/run/alice.sock" "$@"; }
bob() { bin/gpuctl --socket "$run/run/bob.sock" "$@"; }
ready() {
	for _ in $(seq 300); do
		if alice devices --json 2>/dev/null | grep -q '"ready"'; then return 0; fi
		sleep 0.1
	done
	tail -n 20 "$run/log"
	return 1
}

# doubled is a program's answer to 0, 1, 2, … twice: 0, 2, 4, …
doubled() {
	"$1" run vecadd_f32 --in range:4096 --in range:4096 --out "$run/$1.bin" &&
		[[ $(od -An -tf4 -w4 -v "$run/$1.bin" | awk '$1 != 2 * (NR - 1) {bad++} END {print NR, bad + 0}') == "4096 0" ]]
}

# hangs wants a launch that never ends to be stopped at its deadline, and to be told so.
hangs() {
	local status=0
	alice run spin --deadline 300ms >"$run/hang" 2>&1 || status=$?
	cat "$run/hang"
	[[ $status == 1 ]] && grep -q 'timed out' "$run/hang"
}

# beside wants so many right answers of bob while alice hangs, again and again.
beside() {
	(for _ in $(seq 5); do hangs >>"$run/hangs" 2>&1 || echo "a hang ended otherwise" >>"$run/wrong"; done) &
	local hanging=$! n=0
	while kill -0 "$hanging" 2>/dev/null; do
		doubled bob || return 1
		n=$((n + 1))
	done
	wait "$hanging"
	echo "bob had $n answers"
	[[ ! -e $run/wrong ]] && ((n >= 5))
}

# killed wants the next answers of both after a kill of every engine.
killed() {
	pkill -KILL -P "$manager" gpu-engine || pkill -KILL gpu-engine-vul || return 1
	sleep 0.2
	for _ in $(seq 50); do
		if doubled alice && doubled bob; then return 0; fi
		sleep 0.2
	done
	return 1
}

# empty wants nothing to be held by anybody.
empty() {
	sleep 0.5
	for tenant in alice bob; do
		"$tenant" budget --json >"$run/budget"
		cat "$run/budget"
		! grep -E '"(class|resource)": *"(sessions|buffers|deviceMemory|programs)"' -A3 "$run/budget" | grep -qE '"used": *[1-9]' || return 1
	done
}

model() {
	bin/model-server --socket "$run/run/alice.sock" --model "$MODEL" --listen "unix:$run/model.sock" --sequences 1 --batch 8 >"$run/model.log" 2>&1 &
	server=$!
	for _ in $(seq 120); do
		curl -s --unix-socket "$run/model.sock" http://model/v1/completions -d '{"prompt": "", "max_tokens": 64, "temperature": 0}' >"$run/answer" || true
		if grep -q '"text"' "$run/answer"; then break; fi
		sleep 1
	done
	cat "$run/answer"
	python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1]))["choices"][0]["text"].strip() != open(sys.argv[2]).read().strip())' "$run/answer" "$TEXT"
}

check "the device is ready" ready
((failed == 0)) || exit 1
alice devices
check "a program of alice's is right" doubled alice
check "and one of bob's, in an engine of its own" doubled bob
check "a launch without an end is stopped and told as timed out" hangs
check "bob's answers stay right while alice's launches hang" beside
check "engines are killed, and the next ones answer" killed
if [[ -n ${MODEL:-} ]]; then
	check "a language model writes the text that it should" model
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	server=
else
	echo "SKIPPED a language model: MODEL and TEXT name one"
fi
check "nothing is held any more" empty

if ((failed > 0)); then
	echo "run-gpu-vulkan: FAIL, $failed of $checks checks"
	tail -n 20 "$run/log"
	exit 1
fi
echo "run-gpu-vulkan: PASS, $checks checks"
