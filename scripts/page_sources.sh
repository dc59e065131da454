#!/usr/bin/env bash
# Fetches the sources of what the page's models need for WebAssembly besides the library: PCRE2 and utf8proc, of which
# Debian has only native builds, into build/sources/. They come from the source packages of the archive that this machine's
# own packages come from, and are pinned by their hashes. Usage: page_sources.sh
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/sources
archives="c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f  pcre2_10.42.orig.tar.gz
a0a60a79fe6f6d54e7d411facbfcc867a6e198608f2cd992490e46f04b1bcecc  utf8proc_2.8.0.orig.tar.gz"
[ -f $folder/pcre2/LICENCE ] && [ -f $folder/utf8proc/LICENSE.md ] && grep -qxF "$archives" $folder/archives 2>/dev/null && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives" $folder
# The same archive, read into a folder of its own: what this machine installs from stays as it is.
index() {
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u
}
index >"$work/list"
if [ ! -s "$work/list" ]; then # no index was read yet
  [ "$(id -u)" -eq 0 ] && apt-get update -qq
  index >"$work/list"
fi
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=)
echo "page_sources.sh: fetching the sources of PCRE2 and utf8proc" >&2
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }; }
quietly "${apt[@]}" update
(cd "$work/archives" && quietly "${apt[@]}" source --download-only --tar-only pcre2 utf8proc)
(cd "$work/archives" && sha256sum --quiet --check <<<"$archives") || {
  echo "page_sources.sh: the archive has other versions of pcre2 and utf8proc than those that are pinned here:" "$work"/archives/* >&2
  exit 1
}
for name in pcre2 utf8proc; do
  rm -rf "${folder:?}/$name" && mkdir "$folder/$name"
  tar -xzf "$work/archives/$name"_*.orig.tar.gz -C "$folder/$name" --strip-components 1 --no-same-owner
done
echo "$archives" >$folder/archives
