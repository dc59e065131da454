#!/usr/bin/env bash
# Draws the pictures of README.md and docs/lessons.md again: docs/pictures/PRESET.svg, one for each preset.
# Usage: scripts/make_pictures.sh [COMMAND], after make demo.
set -euo pipefail
cd "$(dirname "$0")/.."
command=${1:-build/release/attend}
"$command" explain --list | awk '{ print $1 }' | while read -r preset; do
  "$command" explain --preset "$preset" -o "docs/pictures/$preset.svg"
done
