#!/usr/bin/env bash
# Compiles the library's sources for macOS and Windows with Zig's Clang, links nothing and runs nothing. It finds what only Linux has, in
# sources that should be free of it. What is left out here is what is known to be missing there: packaging/README.md says why.
# Usage: test_other_systems.sh [TARGET]...   aarch64-macos, x86_64-windows-gnu (default: both)
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/portable/zig
tools=tests/requirements-portable.txt
if ! cmp -s $tools $venv/tools; then
  python3 -m venv --clear $venv
  $venv/bin/pip install --quiet --disable-pip-version-check -r $tools
  cp $tools $venv/tools
fi
zig=$(echo $venv/lib/python3*/site-packages/ziglang/zig)
made=build/other_systems
rm -rf $made && mkdir -p $made/headers
# The headers of what the library is made with, which are the same on every system. The rest of /usr/include is this machine's own.
for header in fmt nlohmann zlib.h zconf.h png.h pngconf.h pnglibconf.h freetype2 pcre2.h utf8proc.h tbb oneapi; do
  ln -s /usr/include/$header $made/headers/$header
done

# What each system lacks, as folders of src/ and as sources; and what is taken of these folders all the same.
declare -A left_out=([macos]='io/file core/workers_tbb'
  [windows]='core/tensor_memory core/workers_tbb ring/conveyor io models recording class pages picture html explain look session analysis tokenizer')
declare -A taken=([macos]='' [windows]='io/format io/words picture/text explain/explain explain/maps explain/options_json explain/presets')
never='ring/mpi io/file_in_memory models/find_model_in_memory kernels/targets' # MPI; the page's own; compiled by themselves below

matches() { # NAME PATTERN...: whether one of them is the source, or a folder around it
  local pattern
  for pattern in "${@:2}"; do [[ $1 != "$pattern" && $1 != "$pattern"/* ]] || return 0; done
  return 1
}
sources_of() { # SYSTEM
  local source name
  while read -r source; do
    name=${source#src/} name=${name%.cpp}
    # shellcheck disable=SC2086 # several patterns
    if ! matches "$name" $never && { ! matches "$name" ${left_out[$1]} || matches "$name" ${taken[$1]}; }; then echo "$source"; fi
  done < <(git ls-files --cached --others --exclude-standard 'src/*.cpp')
}
# A dozen sources of a folder as one, as cmake/unity.cmake does: what they all include is read once.
unite() { # SYSTEM FOLDER
  local source name number=0 last=
  while read -r source; do
    name=$(dirname "${source#src/}")
    [ "$name" = "$last" ] || { last=$name number=0; }
    echo "#include \"$PWD/$source\"" >>"$2/${name//\//_}_$((number / 12)).cpp"
    number=$((number + 1))
  done < <(sources_of "$1" | awk -F/ -v OFS=/ '{ file = $NF; NF--; print $0 "\t" file }' | sort | tr '\t' /)
}
compile() { # OBJECT TARGET SOURCE OPTION...
  # Zig's headers for macOS define what float.h has or what math.h has, whichever comes first: NAN and INFINITY, and these two by hand.
  "$zig" c++ -target "$2" -std=c++20 -O0 -g0 -fno-sanitize=undefined -w -c -include math.h -DFLT_MAX=__FLT_MAX__ -DFLT_MIN=__FLT_MIN__ -Iinclude -Isrc -isystem $made/headers \
    -isystem $made/headers/freetype2 -DFMT_HEADER_ONLY "${@:4}" "$3" -o "$1" >"$1.log" 2>&1 && return
  grep -E 'error:' "$1.log" || cat "$1.log"
  echo "$2: can't compile $3"
  return 1
}
export -f compile
export zig made

[ $# -gt 0 ] || set -- aarch64-macos x86_64-windows-gnu
for target; do
  system=${target#*-} system=${system%%-*}
  folder=$made/$target
  mkdir -p "$folder"
  unite "$system" "$folder"
  case "$target" in
    x86_64-*) targets=("baseline" "avx2 -mavx2 -mfma -mf16c") ;;
    *) targets=("neon") ;;
  esac
  {
    for source in "$folder"/*.cpp; do echo "$folder/$(basename "$source" .cpp).o $target $source"; done
    for options in "${targets[@]}"; do
      read -r name options <<<"$options"
      echo "$folder/target_$name.o $target src/kernels/targets/$name.cpp${options:+ $options}" # xargs joins a line that ends with a space
    done
  } | xargs -P "$(nproc)" -L 1 bash -c 'compile "$@"' compile
  echo "$target: $(sources_of "$system" | wc -l) of $(git ls-files 'src/*.cpp' | grep -vc 'src/kernels/targets/') sources compile, and the kernels for ${targets[*]%% *}"
done
