#!/usr/bin/env bash
# What clang-tidy says of the C++ sources (.clang-tidy has the checks): of all of them, or of those that changed since a
# commit; --kernels: and of the kernels, whatever changed. Usage: tidy.sh [COMMIT [--kernels]]
set -euo pipefail
cd "$(dirname "$0")/.."

# Configured, never built: Clang's commands for every source. A precompiled header would have to be there.
options=(-DATTEND_UNITY_BUILD=OFF -DCMAKE_CXX_COMPILER=clang++-16 -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DATTEND_BUILD_TESTS=ON -DATTEND_MPI=ON)
if nanobind=$(build/venv/bin/python -m nanobind --cmake_dir 2>/dev/null); then
  options+=(-DATTEND_BUILD_PYTHON=ON "-Dnanobind_DIR=$nanobind")
else
  options+=(-DATTEND_BUILD_PYTHON=OFF)
  echo "tidy.sh: no build/venv ('make python'): without the Python binding" >&2
fi
cmake --preset release -B build/tidy "${options[@]}" >/dev/null

sources=$(sed -nE "s|^ *\"file\": \"$PWD/(.*\.cpp)\",?\$|\1|p" build/tidy/compile_commands.json | grep -v '^build/' | sort -u)
if [ $# -gt 0 ]; then
  # One target includes every header of the kernels, but for the other targets' vector layers.
  kernels='src/kernels/([^/]*|targets/(avx512_bf16|neon))\.cpp'
  [ "${2:-}" = --kernels ] || kernels='no source'
  changed=$(git diff --name-only --diff-filter=d "$1" -- '*.cpp' && git ls-files --others --exclude-standard -- '*.cpp')
  sources=$(grep -xE -e "$kernels" -e "$(paste -sd '|' <<<"$changed")" <<<"$sources") || exit 0
fi

# Each file that it reads has warnings in other libraries' headers, which it counts.
xargs -P "$(nproc)" -n 1 clang-tidy-16 -p build/tidy --quiet <<<"$sources" 2>&1 | { grep -vE '^[0-9]+ warnings? generated\.$' || true; }
