// Fails where files of src/ import one another in a circle; an imported type counts too. Part of `npm run check`.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const folder = fileURLToPath(new URL("src/", import.meta.url));
const files = readdirSync(folder, { recursive: true }).filter((name) => /\.tsx?$/.test(name));
const named = new Map(files.map((file) => [file.replace(/(\/index)?\.tsx?$/, ""), file]));
const importedBy = (file) =>
  ts.preProcessFile(readFileSync(path.join(folder, file), "utf8")).importedFiles.map(({ fileName }) => named.get(path.join(path.dirname(file), fileName))).filter(Boolean);

const done = new Set();
const follow = (file, way) => {
  if (way.includes(file)) {
    console.error(`files of page/src import one another in a circle: ${[...way.slice(way.indexOf(file)), file].join(" -> ")}`);
    process.exit(1);
  }
  if (!done.has(file)) {
    for (const next of importedBy(file)) follow(next, [...way, file]);
    done.add(file);
  }
};
for (const file of files) follow(file, []);
