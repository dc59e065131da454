#!/usr/bin/env bash
# Whether the PyTorch that pip would fetch for the tests is a small build, for CPUs alone (some 200 MB): elsewhere it comes
# with NVIDIA's libraries, gigabytes that nothing here uses. Says which it is. Usage: small_torch.sh PIP
set -euo pipefail
cd "$(dirname "$0")/.."

torch=$(grep '^torch==' tests/requirements-torch.txt)
# What a build requires is in its metadata, which pip reads alone.
if ! report=$("$1" install --quiet --disable-pip-version-check --dry-run --ignore-installed --no-deps --report - "$torch" 2>&1); then
  echo "small_torch.sh: pip can't get $torch (no network?): the tests go without it" >&2
  exit 1
fi
if grep -qi '"nvidia-' <<<"$report"; then
  echo "small_torch.sh: pip's $torch comes with NVIDIA's libraries, gigabytes: the tests go without it" >&2
  exit 1
fi
