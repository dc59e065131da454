#!/usr/bin/env bash
# Whether programs that were built with an older state of the tree run with a newer one: what abidiff says of the types and functions
# that the public headers of both declare. Usage: abi.sh OLD [NEW]: commits; without NEW the tree as it stands. Exits 1 where such
# a program would break and include/attend says the same inline namespace (attend::v1) as before.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A commit=([old]=${1:?usage: abi.sh OLD [NEW]} [new]=${2:-})
work=build/abi
rm -rf "$work"
mkdir -p "$work"

# The sources of a commit, without what is in the tree besides; or the tree.
sources_of() {
  [ -n "$1" ] || { echo "$PWD" && return; }
  mkdir -p "$2"
  git archive "$1" | tar -x -C "$2"
  (cd "$2" && pwd)
}
version_of() { grep -rhoE 'namespace attend::inline v[0-9]+' "$1/include" | sort -u; }

declare -A sources
for side in old new; do
  sources[$side]=$(sources_of "${commit[$side]}" "$work/$side-sources")
  # Types are in the debugging information; -O0 leaves the functions alone out of it that nobody calls.
  cmake -S "${sources[$side]}" -B "$work/$side" -G Ninja -DATTEND_UNITY_BUILD=ON -DCMAKE_BUILD_TYPE= -DCMAKE_CXX_FLAGS="-g -O0" >"$work/$side.log"
  cmake --build "$work/$side" --target attend >>"$work/$side.log"
done

status=0
abidiff --headers-dir1 "${sources[old]}/include" --headers-dir2 "${sources[new]}/include" \
  "$work/old/libattend.so" "$work/new/libattend.so" >"$work/report" || status=$?
head -60 "$work/report"
[ $((status & 3)) -eq 0 ] || { echo "abi.sh: abidiff failed" >&2 && exit 2; }
# 4: something changed; 8: so that programs break.
if [ $((status & 8)) -eq 0 ] && ! grep -qE '^  \[D\]|Removed function|[1-9][0-9]* Changed' "$work/report"; then
  echo "abi.sh: programs that were built with ${commit[old]} run with ${commit[new]:-the tree}"
elif [ "$(version_of "${sources[old]}")" != "$(version_of "${sources[new]}")" ]; then
  echo "abi.sh: the binary interface has another number, and says so"
else
  echo "abi.sh: programs that were built with ${commit[old]} break: raise the number of attend's inline namespace, or keep the types" >&2
  exit 1
fi
