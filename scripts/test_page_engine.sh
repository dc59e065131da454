#!/usr/bin/env bash
# Builds the page's engine and its module for models (preset wasm) and tests them under Node: the library's own tests that can
# run there, the bits of 700 calls or more beside this machine's, the engine's answers beside the command's, and the models'
# numbers beside the native library's. Needs the library and the command in build/release, and x86-64: its baseline target is
# what the engine is compiled from. Usage: test_page_engine.sh [--build]
#   --build  only builds them
# ATTEND_PAGE_MODELS=OFF leaves out the module for models, where its sources can't be had. MODELS: a folder that
# native_models.sh has filled; none: it fills one.
set -euo pipefail
cd "$(dirname "$0")/.."

models=${ATTEND_PAGE_MODELS:-ON}
[ "$models" = OFF ] || scripts/sources.sh pcre2 utf8proc
cmake --preset wasm -DATTEND_BUILD_TESTS=ON "-DATTEND_PAGE_MODELS=$models" -DATTEND_PAGE_MODELS_LINK=-O1 >/dev/null
cmake --build build/wasm
[ "${1:-}" != --build ] || exit 0

# CombineKernels.AnyNumberOfParts* compares with exp() of long double, which musl (emscripten's C library) rounds to a double.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
node build/wasm/attend_tests.js --gtest_brief=1 --gtest_filter='-UnknownTarget.*:*CombineKernels.AnyNumberOfParts*' \
  >"$work/tests" 2>&1 &
tests=$!

# f64 is left out: its exp and tanh are the C library's, and those of musl and glibc differ in the last bit. Without FMA
# (GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA) glibc's exp has musl's bits, and tanh alone differs.
g++ -std=c++20 -O1 -I include tests/same_bits.cpp -o "$work/same_bits" -L build/release -lattend "-Wl,-rpath,$PWD/build/release"
ATTEND_TARGET=baseline "$work/same_bits" | grep -v ' f64' >"$work/native"
node build/wasm/same_bits.js | grep -v ' f64' >"$work/wasm"
[ "$(wc -l <"$work/wasm")" -gt 700 ] || { echo "test_page_engine.sh: fewer than 700 results" >&2 && exit 1; }
diff "$work/native" "$work/wasm"
echo "the native baseline's bits in all of $(wc -l <"$work/wasm") results"

node --test --test-timeout=3600000 page/tests/engine.test.mjs >"$work/module" || { cat "$work/module" && exit 1; }
sed -nE 's/^# pass ([0-9]+)/\1 passed: the module/p' "$work/module"

test_models() {
  [ -n "${MODELS:-}" ] || scripts/native_models.sh "$work/models"
  MODELS="${MODELS:-$work/models}" node --test --test-timeout=3600000 page/tests/models.test.mjs >"$work/models.log" || { cat "$work/models.log" && exit 1; }
  sed -nE 's/^# pass ([0-9]+)/\1 passed: the module for models/p' "$work/models.log"
}
[ "$models" = OFF ] || test_models

wait "$tests" || { cat "$work/tests" && exit 1; }
tail -1 "$work/tests"
