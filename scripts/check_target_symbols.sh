#!/usr/bin/env bash
# A target's object file is compiled for processors that the running one may not be. It may define no function that other
# files see: of an inline function the linker keeps one copy for the whole program, and it might be this one.
# Usage: check_target_symbols.sh BUILD_FOLDER...
set -euo pipefail

for build in "$@"; do
  objects=("$build"/src/CMakeFiles/attend_objects.dir/kernels/targets/*.cpp.o)
  # What tests a target's vector layer is compiled for it too.
  tests=("$build"/tests/CMakeFiles/attend_tests.dir/kernels/simd/*.cpp.o)
  [ ! -e "${tests[0]}" ] || objects+=("${tests[@]}")
  for object in "${objects[@]}"; do
    # T: global, W: weak, i: chosen at run time. Data (D, V, u) is the same for every processor.
    functions=$(nm --demangle --defined-only --extern-only "$object" | sed -nE 's/^[0-9a-f]+ [TWi] //p')
    [ -z "$functions" ] || { printf '%s defines functions that others see:\n%s\n' "$object" "$functions" >&2 && exit 1; }
  done
  echo "$build: no function leaves the ${#objects[@]} target objects"
done
