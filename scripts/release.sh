#!/usr/bin/env bash
# Makes everything that a release has, from the tag vVERSION where this tree stands on it, into build/release-VERSION: the sources,
# wheels, the command as one file, Debian packages, a list of what is linked in (SBOM) and checksums.
# The machine needs Python 3.10, 3.11 and 3.12, one wheel each. Usage: release.sh [--untagged]   --untagged: to try it
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -nE 's/#define ATTEND_VERSION_STRING "(.*)"/\1/p' include/attend/version.h)
if [ "${1:-}" != --untagged ]; then
  [ "$(git describe --tags --exact-match 2>/dev/null)" = "v$version" ] || { echo "release.sh: expected the tag v$version here; --untagged goes without" >&2 && exit 1; }
  [ -z "$(git status --porcelain)" ] || { echo "release.sh: expected a tree without changes" >&2 && exit 1; }
fi
pythons=()
for minor in 12 11 10; do
  # The first that runs: a version manager has programs of that name that only tell how to choose one.
  for python in $(type -ap "python3.$minor") "$HOME"/.pyenv/versions/3."$minor".*/bin/python; do
    "$python" -c '' 2>/dev/null && pythons+=("$python") && break
  done
  [ ${#pythons[@]} -eq $((13 - minor)) ] || { echo "release.sh: Python 3.$minor isn't on this machine" >&2 && exit 1; }
done

out=build/release-$version
rm -rf "$out" build/portable/wheels && mkdir -p "$out"
make --no-print-directory page
make --no-print-directory deb
cp build/deb/*.deb "$out"
host=$(uname -m)
other=$([ "$host" = x86_64 ] && echo aarch64 || echo x86_64)
# This machine's first: its module runs here, and says what the stub of all has.
for target in "$host-gnu" "$host-musl" "$other-gnu" "$other-musl"; do scripts/portable.sh "$target" "${pythons[@]}"; done
cp build/portable/wheels/*.whl "$out"
for machine in "$host" "$other"; do
  folder=attend-$version-linux-$machine
  rm -rf "build/portable/$folder" && mkdir -p "build/portable/$folder/licences"
  cp "build/portable/$machine-musl/attend" LICENSE NOTICE docs/attend.1 "build/portable/$folder"
  cp "build/portable/$machine-musl/licences"/* "build/portable/$folder/licences"
  tar -C build/portable --sort=name --owner=0 --group=0 --numeric-owner -cJf "$out/$folder.tar.xz" "$folder"
done
git archive --prefix "attend-$version/" HEAD | gzip -n >"$out/attend-$version.tar.gz"
build/portable/venv/bin/python scripts/sbom.py >"$out/attend-$version.cdx.json"
(cd "$out" && sha256sum -- * >SHA256SUMS)
ls -l "$out"
