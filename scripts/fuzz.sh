#!/usr/bin/env bash
# Fuzzes one function of tests/fuzz, from its corpus and what was found before (build/fuzz/corpus). Where an input breaks
# it, exits with an error and the path of that input, in build/fuzz. Usage: fuzz.sh TARGET [LIBFUZZER_OPTION]...
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-}
if [ ! -f "tests/fuzz/$target.cpp" ] || [ ! -d "tests/fuzz/corpus/$target" ]; then
  echo "fuzz.sh: no target '$target': $(basename -a -s .cpp tests/fuzz/*.cpp | grep -v _test | tr '\n' ' ')" >&2 && exit 2
fi
found=build/fuzz/corpus/$target
cmake --preset fuzz >/dev/null
cmake --build build/fuzz --target "fuzz_$target"
mkdir -p "$found"
# A file that is written reaches the disk before its name: in memory that takes no time.
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
# Memory that nobody has is refused, as malloc refuses it.
export ASAN_OPTIONS=allocator_may_return_null=1
# Leaks are looked for at the end: what the library keeps of a word or a thread looks like one after each input, and
# looking for it takes two thirds of the time.
"build/fuzz/fuzz_$target" "$found" "tests/fuzz/corpus/$target" -rss_limit_mb=2048 -timeout=60 -detect_leaks=0 \
  -artifact_prefix="build/fuzz/$target-" "${@:2}"
