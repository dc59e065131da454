#!/usr/bin/env bash
# Fails where a test waits for a time, or looks how long something took: a fast machine, a busy one and one that stood still
# meanwhile make another test of it. A test waits for a place instead (tests/faults.py, an event, a pipe, a latch, a selector),
# or counts what is done. How long a test may take at most its runner says: pyproject.toml, ctest, .ci/common.sh.
# What only measures (speed) or makes pictures is no test.
set -euo pipefail
cd "$(dirname "$0")/.."

python='\b(sleep|monotonic|perf_counter|process_time|thread_time|setitimer|alarm|dump_traceback_later|call_later)\b|\btime\.time\b|(import|from) (.*, )?time\b|\btimeout *=|\bTimer\(|RLIMIT_CPU|\.(wait|join|poll|acquire|result)\([0-9]'
cpp='\b(sleep_for|sleep_until|usleep|nanosleep|try_\w+_(for|until))\b|(\.|->)wait_(for|until)\(|_clock\b|\bclock(_gettime)?\(|<chrono>|<ctime>|\balarm\('
page='\b(waitForTimeout|setTimeout|setInterval|setImmediate)\b|\b(performance|Date)\.now\b|new Date\b|\btimeout:'

found=$(
  git grep --untracked -nP "$python" -- 'tests/*.py' ':!tests/faults.py' || true
  git grep --untracked -nP "$cpp" -- 'tests/*.cpp' 'tests/*.h' ':!tests/fault*' ':!tests/processor_time.h' ':!tests/wasm/speed.cpp' || true
  git grep --untracked -nP "$page" -- 'page/tests/*.mjs' ':!page/tests/*speed.mjs' ':!page/tests/pictures.mjs' || true
)
[ -z "$found" ] || { echo "tests wait for places, never for times (CONTRIBUTING.md):"$'\n'"$found" >&2 && exit 1; }
