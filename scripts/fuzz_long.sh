#!/usr/bin/env bash
# Fuzzes one function until a million inputs were tried and the last 30 minutes of processor time found no new edge.
# Usage: fuzz_long.sh TARGET
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
tried=0 quiet=0 edges=0
while [ "$tried" -lt 1000000 ] || [ "$quiet" -lt 1800 ]; do
  TIMEFORMAT=%U
  spent=$({ time scripts/fuzz.sh "$1" -max_total_time=600 -print_final_stats=1 >"$log" 2>&1; } 2>&1) || { cat "$log" && exit 1; }
  tried=$((tried + $(sed -nE 's/^stat::number_of_executed_units: //p' "$log")))
  # "#4096  DONE   cov: 812 ft: 2544 ..."
  now=$(sed -nE 's/.*DONE +cov: ([0-9]+).*/\1/p' "$log")
  quiet=$([ "$now" -gt "$edges" ] && echo 0 || echo $((quiet + ${spent%.*})))
  edges=$now
done
echo "1 passed: $1, $tried inputs, $edges edges"
