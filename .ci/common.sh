# What .ci/run and .ci/long share. Sourced with the tree's root as the working folder.
# shellcheck shell=bash
set -euo pipefail

log=$(mktemp -d)
# With what they run, where they have a process group of their own (set -m).
end_jobs() {
  local job
  for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || kill "$job" 2>/dev/null || true; done
}
trap 'end_jobs; rm -rf "$log"' EXIT

# A file that was compiled here before is not compiled again, though build/ is gone. (Precompiled headers are a folder's own:
# builds in two folders share the kernels, and what is compiled without them.)
export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
# Wheels too are built with warnings as errors.
export SKBUILD_CMAKE_DEFINE=ATTEND_WERROR=ON

# A heading, and how long what stood under the last one took: on the clock, and on the processors (a build beforehand is counted
# where it is waited for).
step() {
  local used
  times >"$log/.times" # 0m1.20s 0m0.30s, of the shell and of what it has waited for
  used=$(awk -F '[ms ]+' '{ sum += 60 * ($1 + $3) + $2 + $4 } END { printf "%d", sum }' "$log/.times")
  [ -z "${began:-}" ] || printf -- '-- %s: %s s, %s s of processors\n' "$heading" $((SECONDS - began)) $((used - used_before))
  began=$SECONDS used_before=$used heading=$*
  printf '\n== %s\n' "$*"
}

# beside NAME COMMAND...: beside the steps that follow. built NAME waits for it, and fails where it did.
declare -A building
beside() {
  set -m # what it has started ends with this script
  "${@:2}" >"$log/$1.build" 2>&1 &
  building[$1]=$!
  set +m
}
built() { wait "${building[$1]}" || { cat "$log/$1.build" && exit 1; }; }

# beforehand NAME COMMAND...: builds what a later step needs beside the steps before it, some of which use one core: after what
# was to be built before it, and with what processor time they leave.
beforehand() {
  beside "$1" build_after "${last_build:-}" "${@:2}"
  last_build=${building[$1]}
}
build_after() {
  renice -n 19 $BASHPID
  [ -z "$1" ] || tail --pid="$1" -f /dev/null
  "${@:2}"
}

# in_halves NAME COMMAND...: a program of gtest's in two halves side by side. One that hangs ends after an hour.
in_halves() {
  local name=$1 half halves=()
  shift
  for half in 0 1; do
    GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$half timeout 3600 "$@" --gtest_brief=1 >"$log/$name$half" 2>&1 &
    halves+=($!)
  done
  for half in 0 1; do
    wait "${halves[half]}" || { cat "$log/$name$half" && exit 1; }
    tail -1 "$log/$name$half"
  done
}

# elsewhere COMMAND...: as under nohup (Ctrl-C ignored, no terminal), on one core, with a home that takes no files and its
# temporary files in another place.
elsewhere() {
  local core
  core=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
  mkdir -p "$log/elsewhere"
  (trap '' INT && HOME=/dev/null TMPDIR="$log/elsewhere" exec setsid --wait taskset -c "$core" "$@" </dev/null)
}

# build PRESET [CMAKE_OPTION...]: the C++ tests; ATTEND_TEST_FOLDERS chooses some of them. What is built beside them is chosen anew.
build_tests() {
  cmake --preset "$1" -U 'ATTEND_BUILD_*' -DATTEND_BUILD_TESTS=ON "${@:2}" >/dev/null
  cmake --build "build/$1" --target attend_tests
}

# node's runner: "# pass 37". ctest: "100% tests passed, 0 tests failed out of 120"; pytest: "98 passed, 1 skipped in 12s"; gtest:
# "[  PASSED  ] 30 tests."; .ci/run, in .ci/long: "4321 passed, 0 failed, 21 skipped".
count() { find "$log" -maxdepth 1 -type f -exec cat {} + | sed -nE "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }
summary() {
  step "all of it"
  local passed skipped
  passed=$(count 's/.* 0 tests failed out of ([0-9]+).*/\1/p; s/^=* ?([0-9]+) passed.*/\1/p; s/^\[  PASSED  \] ([0-9]+) tests?\..*/\1/p; s/^(# |ℹ )pass ([0-9]+)$/\2/p')
  skipped=$(count 's/.*[ ,]([0-9]+) skipped.*/\1/p; s/^\[  SKIPPED \] ([0-9]+) tests?,.*/\1/p; s/^(# |ℹ )skipped ([0-9]+)$/\2/p')
  printf '\nin %s s\n%s passed, 0 failed, %s skipped\n' "$SECONDS" "$passed" "$skipped"
}
