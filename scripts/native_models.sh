#!/usr/bin/env bash
# Writes small models, and what the native library makes of them with its baseline target, for page/tests. Needs the library
# in build/release. Usage: native_models.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++20 -O1 -I include tests/wasm/native_models.cpp -o "$work/native_models" -L build/release -lattend "-Wl,-rpath,$PWD/build/release"
mkdir -p "$1"
ATTEND_TARGET=baseline "$work/native_models" tests/golden "$1"
