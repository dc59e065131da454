#!/usr/bin/env bash
# Trains, scores, draws and translates. Usage: demo.sh TRANSLATE FOLDER [OPTION of `translate train`]...
# FOLDER has pairs.tsv (make translate-data); the rest goes there too. Called by `make translate` after the build.
set -euo pipefail

translate=$1 folder=$2
shift 2
model=$folder/model.safetensors
"$translate" train --data "$folder/pairs.tsv" --checkpoint "$model" "$@"
"$translate" score --data "$folder/pairs.tsv" --checkpoint "$model" -o "$folder/test.tsv"
"$translate" plot --checkpoint "$model" -o "$folder/loss.svg"

echo
sentences=("Cannot open the selected file" "Do you want to save the changes?" "The connection to the server was closed"
  "Remove all unused layers")
for i in "${!sentences[@]}"; do
  picture=()
  [ "$i" != 0 ] || picture=(--attention "$folder/attention.svg")
  printf '%s\n  ' "${sentences[i]}"
  "$translate" text --checkpoint "$model" "${picture[@]}" "${sentences[i]}"
done
echo
echo "Losses: $folder/loss.svg; which words it looked at: $folder/attention.svg; test messages: $folder/test.tsv"
