// Makes lesson.html, the page that to_html() fills in: script, styles and the compressed module in one file, under a
// policy that allows these alone. Usage: node build.mjs [ENGINE_FOLDER [OUTPUT]]
import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const engine = path.resolve(process.argv[2] ?? path.join(here, "../build/wasm"));
const output = path.resolve(process.argv[3] ?? path.join(here, "../build/page/lesson.html"));
const most = 900_000; // bytes of a page, with what a sentence adds

const bundled = async (entry) => {
  const { outputFiles } = await build({
    entryPoints: [path.join(here, "src", entry)],
    alias: { "attend-engine": path.join(engine, "attend.mjs") },
    bundle: true, minify: true, write: false, format: "iife", target: ["es2022"], charset: "utf8", legalComments: "none",
    jsx: "automatic", jsxImportSource: "preact", define: { "import.meta.url": '"attend"' },
    external: ["node:*", "module", "fs", "path", "url", "crypto"], logLevel: "warning",
  });
  return outputFiles[0].text;
};
const hashOf = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

// A script may not hold the words that end it.
const script = (await bundled("main.tsx")).replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const style = (await bundled("style.css")) + (await bundled("static.css"));
const module = gzipSync(await readFile(path.join(engine, "attend.wasm")), { level: 9 }).toString("base64");
const policy = `default-src 'none'; script-src ${hashOf(script)} 'wasm-unsafe-eval'; style-src ${hashOf(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'`;

const licences = await readFile(path.join(here, "licences.txt"), "utf8");

const page = `<!doctype html>
<!--
${licences}-->
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title><!--attend:title--></title>
<style>${style}</style>
</head>
<body>
<div id="app"></div>
<main id="static"><!--attend:static--></main>
<script type="application/json" id="request"><!--attend:request--></script>
<script type="text/plain" id="engine">${module}</script>
<script>${script}</script>
</body>
</html>
`;
if (Buffer.byteLength(page) > most) throw new Error(`the page has ${Buffer.byteLength(page)} bytes, ${most} at most`);
await mkdir(path.dirname(output), { recursive: true });
await writeFile(output, page);
console.log(`${path.relative(process.cwd(), output)}: ${Math.round(Buffer.byteLength(page) / 1024)} KB, the module ${Math.round(module.length / 1024)} KB of it`);
