#!/usr/bin/env bash
# Installs the Debian packages that are missing, and says which. Usage: setup.sh [GROUP]...
#   build  what the library and the command need (default)
#   demo   what fetches the demo's model: any Python's pip
#   mpi    and what attend::mpi and a command that mpirun may start need
#   python and what the Python package needs, and the benchmark
#   page   what the page that computes is made with
#   page-models  and what its module for models is: sources that sources.sh fetches
#   portable  what portable.sh unpacks and compiles for other machines with
#   test   and what the tests need
#   fuzz   what the fuzzers need, and what the library does
#   coverage  what coverage.sh counts branches with
#   docs   what make docs needs besides pip's packages: the Python package's needs, and what renders the man page
#   deb    what make deb needs, and the library does
#   long   what .ci/long needs besides
#   check  all of it, and what .ci/run needs besides
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libcli11-dev libfmt-dev nlohmann-json3-dev libpng-dev zlib1g-dev libtbb-dev
  libfreetype-dev fonts-dejavu-core libpcre2-dev libutf8proc-dev)
mpi=(libopenmpi-dev openmpi-bin)
python=(python3 python3-dev python3-venv)
page=(emscripten nodejs)
command -v npm >/dev/null || page+=(npm) # NodeSource's nodejs has it, and goes with none other
portable=(make xz-utils bzip2)
[ "$(uname -m)" != x86_64 ] || portable+=(g++-aarch64-linux-gnu) # the other processor's kernels
[ "$(uname -m)" != aarch64 ] || portable+=(g++-x86-64-linux-gnu)
test=(libgtest-dev libgmock-dev)
fuzz=(clang-16 libclang-rt-16-dev llvm)
coverage=(clang-16 libclang-rt-16-dev llvm-16)
docs=(mandoc)
deb=(dpkg-dev)
long=(debootstrap lintian libmpich-dev mpich abigail-tools)
check=(ccache clang-format clang-tidy-16 shellcheck zsh fish g++-aarch64-linux-gnu qemu-user chromium)

wanted=()
sources=
for group in "${@:-build}"; do
  case "$group" in
    build) wanted+=("${build[@]}") ;;
    demo) python3 -m pip --version >/dev/null 2>&1 || wanted+=(python3-pip) ;;
    mpi) wanted+=("${build[@]}" "${mpi[@]}") ;;
    python) wanted+=("${build[@]}" "${python[@]}") ;;
    page) wanted+=("${build[@]}" "${page[@]}") ;;
    page-models) wanted+=("${build[@]}" "${page[@]}") sources=yes ;;
    portable) wanted+=("${build[@]}" "${python[@]}" "${portable[@]}") ;;
    test) wanted+=("${build[@]}" "${mpi[@]}" "${python[@]}" "${test[@]}") ;;
    fuzz) wanted+=("${build[@]}" "${fuzz[@]}") ;;
    coverage) wanted+=("${build[@]}" "${coverage[@]}") ;;
    docs) wanted+=("${build[@]}" "${python[@]}" "${docs[@]}") ;;
    deb) wanted+=("${build[@]}" "${mpi[@]}" "${deb[@]}") ;;
    long) wanted+=("${long[@]}") ;;
    check) wanted+=("${build[@]}" "${mpi[@]}" "${python[@]}" "${page[@]}" "${test[@]}" "${fuzz[@]}" "${docs[@]}" "${check[@]}") ;;
    *) echo "setup.sh: no group '$group': build, demo, mpi, python, page, page-models, portable, test, fuzz, coverage, docs, deb, long or check" >&2 && exit 2 ;;
  esac
done

[ ${#wanted[@]} -gt 0 ] || exit 0
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: not a Debian system; install what these packages hold: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qx "$package" <<<"$installed" || missing+=("$package")
done
fetch_sources() { [ -z "$sources" ] || "$(dirname "$0")/sources.sh" pcre2 utf8proc; }
if [ ${#missing[@]} -eq 0 ]; then
  fetch_sources
  exit 0
fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: not root and no sudo; as root: apt-get install ${missing[*]}" >&2 && exit 1; }
  as_root=(sudo "${as_root[@]}") # sudo drops the caller's environment
fi
echo "setup.sh: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "$@" >"$log" 2>&1 || { cat "$log" >&2 && return 1; }; }
quietly "${as_root[@]}" apt-get update -qq
quietly "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
fetch_sources
