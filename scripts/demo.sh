#!/usr/bin/env bash
# Explains attention on a sentence in the terminal, and draws it into build/demo. Called by `make demo` after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

attend=build/${PRESET:-release}/attend
mkdir -p build/demo
"$attend" explain
"$attend" explain -o build/demo/life.svg -o build/demo/life.png -o build/demo/life.html 2>/dev/null

echo
echo "Pictures: build/demo/life.svg, life.png and life.html (every step on one page)"
echo "Next:     $attend explain \"the cat sat on the mat\" --focus cat"
echo "          $attend explain --list    and    $attend explain --help"
