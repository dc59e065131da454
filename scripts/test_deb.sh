#!/usr/bin/env bash
# In a bare Debian of this machine's release, without the headers of PCRE2, utf8proc, libpng and FreeType: a project that has
# attend without models and pictures as a part; then the packages that `make deb` made, installed and used. Asks for root.
# Usage: test_deb.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# No bug of Debian's asked for the packages, no mail goes to their maintainer, a version tells a library's symbols, and CPack
# calls ldconfig where Debian has a trigger.
lintian --fail-on error,warning \
  --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,no-symbols-control-file,lacks-ldconfig-trigger,maintscript-calls-ldconfig \
  build/deb/*.deb

root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null || true; rm -rf "$root"' EXIT
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
needed=$(for deb in build/deb/*.deb; do dpkg-deb --field "$deb" Depends; done |
  tr ',' '\n' | sed -E 's/^ *([^ ]+).*/\1/' | grep -v -e '^\(lib\)\?attend' -e openmpi | sort -u | paste -sd ,)
debootstrap --variant=minbase \
  --include="g++,cmake,ninja-build,pkg-config,libfmt-dev,libtbb-dev,nlohmann-json3-dev,zlib1g-dev,$needed" \
  "$release" "$root" >"$root.log" || { cat "$root.log" && exit 1; }
rm "$root.log"
# Open MPI's dependencies have alternatives, which debootstrap does not choose among.
chroot "$root" apt-get install -y -qq --no-install-recommends libopenmpi-dev openmpi-bin >"$root.log" 2>&1 || { cat "$root.log" && exit 1; }
rm "$root.log"
for header in pcre2.h utf8proc.h png.h freetype2 CLI; do
  [ ! -e "$root/usr/include/$header" ] || { echo "test_deb.sh: $header is there" >&2 && exit 1; }
done
mkdir "$root/tree" "$root/debs"
git ls-files -z --cached --others --exclude-standard -- CMakeLists.txt cmake include src tests/install | xargs -0 cp --parents -t "$root/tree"
cp build/deb/*.deb "$root/debs"

mount -t proc proc "$root/proc" # attend finds attend-mpi from where it lies itself

# A bare machine knows nothing of this one's compiler cache.
chroot "$root" env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 bash -euo pipefail <<'SCRIPT'
cmake -G Ninja -S /tree/tests/install/subproject -B /small -DCMAKE_BUILD_TYPE=Release -DATTEND=fetched -DATTEND_TREE=/tree -DSMALL=ON >/dev/null
cmake --build /small >/dev/null
/small/program

dpkg --install /debs/*.deb >/dev/null
attend --version
attend explain -o /tmp/sentence.png
attend explain "a b c" --json >/tmp/sentence.json
test -s /usr/share/man/man1/attend.1.gz -a -s /usr/share/bash-completion/completions/attend
cmake -G Ninja -S /tree/tests/install/program -B /found >/dev/null
cmake --build /found >/dev/null
/found/program
c++ -std=c++20 /tree/tests/install/program/program.cpp $(pkg-config --cflags --libs attend) -o /tmp/program
/tmp/program

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent=true
cmake -G Ninja -S /tree/tests/install/mpi_program -B /over_mpi >/dev/null
cmake --build /over_mpi >/dev/null
mpirun -n 2 /over_mpi/mpi_program </dev/null
attend explain "a b c" -o /tmp/weights.npz
cd /tmp && mpirun -n 2 attend run weights.npz:queries weights.npz:keys weights.npz:values -o out.npy </dev/null
attend inspect out.npy
SCRIPT
