#!/usr/bin/env bash
# Which branches of what reads files and text the tests and the fuzzers' corpora take, by Clang's source-based coverage: a
# table of src/io, src/tokenizer, src/models and src/recording, and build/coverage/report/index.html with each branch that
# nothing took. Usage: coverage.sh [PYTEST_ARGUMENT]... (default: tests)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test coverage
cmake --preset coverage -DATTEND_BUILD_TESTS=ON -DATTEND_MPI=ON >/dev/null
cmake --build build/coverage
rm -rf build/coverage/profiles

build/coverage/attend_tests --gtest_brief=1 --gtest_filter='-UnknownTarget.*' | tail -1

# The Python tests over the environment of make test, with a package of this build.
make --no-print-directory build/venv/torch
venv=build/coverage-venv
python3 -m venv --clear $venv
readlink -e build/venv/lib/python3.*/site-packages >"$(echo $venv/lib/python3.*/site-packages)/attend.pth"
touch $venv/light $venv/torch $venv/ready
make --no-print-directory python PRESET=coverage VENV=$venv
[ $# -gt 0 ] || set -- tests
$venv/bin/python -m pytest -q -p no:cacheprovider "$@" --command build/coverage/attend || true # what ends a process at a limit fails here

merged=build/coverage/merged.profdata
sources=(src/io src/tokenizer src/models src/recording)
llvm-profdata-16 merge -sparse build/coverage/profiles/*.profraw -o $merged
llvm-cov-16 show -format=html -show-branches=count -output-dir=build/coverage/report -instr-profile=$merged build/coverage/attend_tests \
  "${sources[@]}"
llvm-cov-16 export -summary-only -instr-profile=$merged build/coverage/attend_tests "${sources[@]}" | python3 scripts/coverage_table.py
