// Makes the pages that the library fills in: lesson.html for a trace, explorer.html for a model or a recording, class.html
// for a guided experiment.
// Usage: node build.mjs [ENGINE_FOLDER [OUTPUT_FOLDER]]
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const engine = path.resolve(process.argv[2] ?? path.join(here, "../build/wasm"));
const output = path.resolve(process.argv[3] ?? path.join(here, "../build/page"));

const bundled = async (entry) => {
  const { outputFiles } = await build({
    entryPoints: [path.join(here, "src", entry)],
    alias: { "attend-engine": path.join(engine, "attend.mjs"), "attend-models": path.join(engine, "attend_models.mjs") },
    bundle: true, minify: true, write: false, format: "iife", target: ["es2022"], charset: "utf8", legalComments: "none",
    jsx: "automatic", jsxImportSource: "preact", define: { "import.meta.url": '"attend"' },
    external: ["node:*", "module", "fs", "path", "url", "crypto"], logLevel: "warning",
  });
  return outputFiles[0].text;
};
// A script may not hold the words that end it.
const scriptOf = async (entry) => (await bundled(entry)).replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
const hashOf = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const data = (id, text, type = "text/plain") => `<script type="${type}" id="${id}">${text}</script>\n`;

// One file: the script, the styles and the compressed module under a policy that allows these alone, at most so many
// bytes, with what a sentence adds.
const write = async ({ file, entry, styles, module, worker, frames, marks, notices, most }) => {
  const licences = (await Promise.all(notices.map((name) => readFile(path.join(here, name), "utf8")))).join("\n");
  const script = await scriptOf(entry);
  const style = (await Promise.all(styles.map(bundled))).join("");
  const binary = module ? gzipSync(await readFile(path.join(engine, module)), { level: 9 }).toString("base64") : "";
  const policy = `default-src 'none'; script-src ${hashOf(script)}${module ? " 'wasm-unsafe-eval'" : ""}; style-src ${hashOf(style)}; img-src data: blob:; ${worker ? "worker-src blob:; " : ""}${frames ? `frame-src ${frames}; ` : ""}base-uri 'none'; form-action 'none'`;
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
${data("request", "<!--attend:request-->", "application/json")}${marks}${worker ? data("worker", await scriptOf(worker)) : ""}${module ? data("engine", binary) : ""}<script>${script}</script>
</body>
</html>
`;
  const bytes = Buffer.byteLength(page);
  if (bytes > most) throw new Error(`${file} has ${bytes} bytes, ${most} at most`);
  await mkdir(output, { recursive: true });
  await writeFile(path.join(output, file), page);
  console.log(`${path.relative(process.cwd(), path.join(output, file))}: ${Math.round(bytes / 1024)} KB${module ? `, the module ${Math.round(binary.length / 1024)} KB of it` : ""}`);
};

await write({ file: "lesson.html", entry: "main.tsx", styles: ["style.css", "static.css"], module: "attend.wasm", marks: "", notices: ["licences.txt"], most: 900_000 });
// In its frames stand pages beside it, whose address is 'self' on a host and a file: on a disk.
await write({ file: "class.html", entry: "class/main.tsx", styles: ["style.css", "class/class.css", "static.css"], frames: "'self' file:", marks: "", notices: ["licences.txt"], most: 200_000 });
// Where the module for models was built (make page-models). Tests link it with -O1, which makes it 10 KB larger; three languages take 40 KB.
if (existsSync(path.join(engine, "attend_models.wasm")))
  await write({
    file: "explorer.html", entry: "explorer/main.tsx", worker: "explorer/worker.ts", styles: ["style.css", "explorer/explorer.css", "static.css"],
    module: "attend_models.wasm", marks: data("file", "<!--attend:file-->"), notices: ["licences.txt", "licences-models.txt"], most: 1_900_000,
  });
