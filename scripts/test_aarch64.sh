#!/usr/bin/env bash
# Builds the C++ tests for AArch64 and runs them under qemu. Usage: test_aarch64.sh [kernels] [--build]
#   kernels  only those that depend on the kind of processor, a fifth of the random calls around the kernels (CONTRIBUTING.md)
#   --build  only builds them
# Debian's arm64 libraries are unpacked below build/: the system itself keeps to one architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libfmt-dev libfmt9 libtbb-dev libtbb12 libtbbmalloc2
  libtbbbind-2-5 libpng-dev libpng16-16 zlib1g-dev zlib1g libfreetype-dev libfreetype6 libbrotli1 libpcre2-dev
  libpcre2-8-0 libutf8proc-dev libutf8proc2)
root=$PWD/build/aarch64-root

unpack() {
  local state=$PWD/build/aarch64-apt package
  rm -rf "$root" "$state"
  mkdir -p "$root" "$state/lists/partial" "$state/archives/partial"
  touch "$state/status"
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state")
  "${apt[@]}" update
  (cd "$state/archives" && "${apt[@]}" download "${packages[@]}")
  for package in "$state"/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
  rm -rf "$state"
  echo "${packages[*]}" >"$root/ready"
}

[ "$(cat "$root/ready" 2>/dev/null)" = "${packages[*]}" ] || unpack
whole=ON folders="" filter=""
if [ "${1:-}" = kernels ]; then
  # Not what depends on threads and memory, not on the kind of processor: a test takes 15 times as long here.
  export ATTEND_TEST_SWEEPS=fifth
  whole=OFF folders="core;kernels;attention" filter='-Threads*:Host*:AttentionBackwardBits*:AttentionBackwardMemory*:AttentionDropout*:UnknownTarget.*'
fi
cmake --preset aarch64 -U 'ATTEND_BUILD_*' -DATTEND_BUILD_TESTS=ON -DATTEND_WERROR=ON "-DATTEND_TEST_FOLDERS=$folders" \
  -DATTEND_MODELS=$whole -DATTEND_PICTURES=$whole >/dev/null
if [ -n "$folders" ]; then cmake --build build/aarch64 --target attend_tests; else cmake --build build/aarch64; fi
[ "${*: -1}" != --build ] || exit 0

# In one process for each core: under qemu a process for each test would take longer to start than most tests run.
libraries=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu
run() { qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$libraries" "$@"; }
shards=$(nproc) running=()
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
for ((shard = 0; shard < shards; ++shard)); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard run build/aarch64/attend_tests --gtest_brief=1 "--gtest_filter=${filter:--UnknownTarget.*}" \
    >"$logs/$shard" 2>&1 &
  running+=($!)
done
failed=0
for ((shard = 0; shard < shards; ++shard)); do
  wait "${running[shard]}" || failed=1
  cat "$logs/$shard"
done
# And on a processor without products of bytes, which the one that qemu is by itself has.
run -cpu cortex-a57 build/aarch64/attend_tests --gtest_brief=1 --gtest_filter='*BlockKernels*' || failed=1
[ -n "$folders" ] || run build/aarch64/translate_tests --gtest_brief=1 || failed=1
exit $failed
