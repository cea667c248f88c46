# Sourced, in the repository's root. `fetch_lavapipe` sees to a lavapipe that computes rightly.

# Debian 12's lavapipe is old (Mesa 22.3: loops end after 65535 rounds, and the
# like). That of bookworm-backports is unpacked beside it, nothing is installed; it
# decides where the old one differs. Without it the tests run all the same.
fetch_lavapipe() {
	local into=$PWD/.cache/lavapipe tmp
	[[ ! -e $into ]] || return 0
	grep -q '^VERSION_CODENAME=bookworm$' /etc/os-release || return 0
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' RETURN
	mkdir -p "$tmp"/{lists,cache/archives}/partial "$tmp/parts" "$tmp/root"
	for suite in bookworm bookworm-backports; do
		printf 'Types: deb\nURIs: http://deb.debian.org/debian\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n' "$suite"
	done >"$tmp/parts/debian.sources"
	cat >"$tmp/apt.conf" <<-END
		Dir::Etc::sourcelist "/dev/null";
		Dir::Etc::sourceparts "$tmp/parts";
		Dir::State::lists "$tmp/lists";
		Dir::Cache "$tmp/cache";
		APT::Sandbox::User "root";
	END
	(
		set -e
		cd "$tmp"
		export APT_CONFIG=$tmp/apt.conf
		timeout 120 apt-get update -qq
		timeout 120 apt-get download -qq -t bookworm-backports mesa-vulkan-drivers libdrm2
		for package in *.deb; do dpkg-deb -x "$package" root; done
	) >"$tmp/log" 2>&1 </dev/null || {
		echo "no newer lavapipe: $(tail -n 1 "$tmp/log")" >&2
		return 0
	}
	mkdir -p "${into%/*}"
	mv "$tmp/root" "$into"
}
