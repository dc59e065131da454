#!/usr/bin/env bash
# Which branches of what reads files and text the tests take, by Clang's source-based coverage: a table of src/io,
# src/tokenizer, src/models and src/recording, and build/coverage/report/index.html with each branch that nothing took.
# Usage: coverage.sh [PYTEST_ARGUMENT]... (default: tests, which takes an hour on 2 cores)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test coverage
cmake --preset coverage -DATTEND_BUILD_TESTS=ON -DATTEND_MPI=ON >/dev/null
cmake --build build/coverage
profiles=$PWD/build/coverage/profiles
rm -rf "$profiles"
export LLVM_PROFILE_FILE=$profiles/%4m.profraw

GTEST_BRIEF=1 build/coverage/attend_tests --gtest_filter='-UnknownTarget.*' | tail -1

# The Python tests over the environment of make test, with a package of this build.
make --no-print-directory python WITH=torch
venv=build/coverage-venv
python3 -m venv --clear $venv
readlink -e build/venv/lib/python3.*/site-packages >"$(echo $venv/lib/python3.*/site-packages)/attend.pth"
touch $venv/light $venv/torch $venv/ready
make --no-print-directory python PRESET=coverage VENV=$venv
[ $# -gt 0 ] || set -- tests
$venv/bin/python -m pytest -q -p no:cacheprovider "$@" --command build/coverage/attend || true # a limit that ends a process is no failure here

merged=build/coverage/merged.profdata
llvm-profdata-16 merge -sparse "$profiles"/*.profraw -o $merged
objects=(build/coverage/attend_tests -object "$(readlink -f build/coverage/libattend.so)")
sources=(src/io src/tokenizer src/models src/recording)
llvm-cov-16 show -format=html -show-branches=count -output-dir=build/coverage/report -instr-profile=$merged "${objects[@]}" "${sources[@]}"
llvm-cov-16 export -summary-only -instr-profile=$merged "${objects[@]}" "${sources[@]}" | python3 scripts/coverage_table.py
