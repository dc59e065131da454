#!/usr/bin/env bash
# Whether two states of the tree compute the same bits: builds both, runs tests/same_bits.cpp with each on every target
# that the processor has, and compares. Prints what the library takes to compile and how large it is besides.
# Usage: same_bits.sh OLD [NEW]: commits; without NEW the tree as it stands. Exits 1 where a result differs.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A commit=([old]=${1:?usage: same_bits.sh OLD [NEW]} [new]=${2:-})
work=build/same-bits
rm -rf "$work"
mkdir -p "$work"

# The sources of a commit, without what is in the tree besides; or the tree.
sources_of() {
  local folder=$2
  [ -n "$1" ] || { echo "$PWD" && return; }
  mkdir -p "$folder"
  git archive "$1" | tar -x -C "$folder"
  (cd "$folder" && pwd)
}

# Compiles the library in a folder of its own, from nothing and without a cache; prints seconds of the processor.
build() {
  local sources=$1 folder=$2
  CCACHE_DISABLE=1 cmake -S "$sources" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$folder.log"
  local TIMEFORMAT='%U %S'
  { time CCACHE_DISABLE=1 cmake --build "$folder" --target attend >>"$folder.log"; } 2>&1 | awk 'END { printf "%.0f", $1 + $2 }'
  g++ -std=c++20 -O1 -I "$sources/include" tests/same_bits.cpp -o "$folder/same_bits" -L "$folder" -lattend "-Wl,-rpath,$PWD/$folder"
}

for side in old new; do
  seconds=$(build "$(sources_of "${commit[$side]}" "$work/$side-sources")" "$work/$side")
  echo "${commit[$side]:-the tree}: the library takes $seconds s of one core to compile and $(stat -L -c %s "$work/$side/libattend.so") bytes"
done

differ=0 compared=0
for target in baseline avx2 avx2_vnni avx512 avx512_vnni avx512_bf16 neon; do
  for side in old new; do
    status=0
    ATTEND_TARGET=$target "$work/$side/same_bits" >"$work/$side.$target" || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 4 ] || exit "$status"
  done
  [ "$status" -eq 0 ] || continue
  compared=1
  if diff "$work/old.$target" "$work/new.$target" >"$work/$target.diff"; then
    echo "$target: the same bits in all of $(wc -l <"$work/new.$target") results"
  else
    differ=1
    echo "$target: other bits in $(grep -c '^[<>]' "$work/$target.diff") lines, of which the first are"
    head -20 "$work/$target.diff"
  fi
done
[ $compared -eq 1 ] || { echo "same_bits.sh: no target ran" >&2 && exit 1; }
exit $differ
