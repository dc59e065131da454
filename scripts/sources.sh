#!/usr/bin/env bash
# Fetches the sources of libraries that are compiled with attend, because Debian's own builds are for this machine alone, into
# build/sources/NAME. They come from the source packages of the archive that this machine's own packages come from, and are pinned
# by their hashes (scripts/sources.txt). Usage: sources.sh NAME...
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/sources

row() { grep "^$1 " scripts/sources.txt || { echo "sources.sh: scripts/sources.txt has no '$1'" >&2 && exit 1; }; }
missing=()
for name; do
  [ "$(cat "$folder/$name/.pinned" 2>/dev/null)" = "$(row "$name")" ] || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives" $folder
# The same archive, read into a folder of its own: what this machine installs from stays as it is. Security updates change patches,
# never the archive.
index() {
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    grep -v -- '-security ' | sort -u
}
index >"$work/list" || true
if [ ! -s "$work/list" ]; then # no index was read yet
  [ "$(id -u)" -eq 0 ] && apt-get update -qq
  index >"$work/list"
fi
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
echo "sources.sh: fetching the sources of ${missing[*]}" >&2
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }; }
quietly "${apt[@]}" update
(cd "$work/archives" && quietly "${apt[@]}" source --download-only --tar-only "${missing[@]}")
for name in "${missing[@]}"; do
  read -r _ archive hash _ < <(row "$name")
  (cd "$work/archives" && sha256sum --quiet --check <<<"$hash  $archive") || {
    echo "sources.sh: the archive has another version of $name than $archive:" "$work"/archives/* >&2
    exit 1
  }
  rm -rf "${folder:?}/$name" && mkdir "$folder/$name"
  tar -xf "$work/archives/$archive" -C "$folder/$name" --strip-components 1 --no-same-owner
  row "$name" >"$folder/$name/.pinned"
done
