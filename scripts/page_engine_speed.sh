#!/usr/bin/env bash
# How long attention() takes in headless Chromium: 1,024 tokens, one head of 64, f32; the median of 40 calls.
# Usage: page_engine_speed.sh
set -euo pipefail
cd "$(dirname "$0")/.."

cmake --preset wasm -DATTEND_BUILD_TESTS=ON >/dev/null
cmake --build build/wasm --target attend_speed
page=$PWD/build/wasm/speed.html
{
  printf '<pre id="times">not run</pre><script type="module">\n'
  sed 's/^export default Module;*//' build/wasm/attend_speed.mjs
  printf 'const bytes = Uint8Array.from(atob("%s"), (c) => c.charCodeAt(0));\n' "$(base64 -w0 build/wasm/attend_speed.wasm)"
  cat <<'SCRIPT'
const module = await Module({ wasmBinary: bytes });
const times = Array.from({ length: 40 }, () => module._attend_attention_ms(1024, 64)).sort((a, b) => a - b);
document.getElementById("times").textContent = `median ${times[20].toFixed(1)} ms, least ${times[0].toFixed(1)} ms`;
</script>
SCRIPT
} >"$page"
timeout 120 chromium --headless --no-sandbox --disable-gpu --dump-dom "file://$page" 2>/dev/null | sed -n 's/.*<pre id="times">\(.*\)<\/pre>.*/\1/p'
