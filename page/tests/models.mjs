// The module for models under Node, as the page has it: a model's files are written into its memory, requests and answers
// are JSON.
import { readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const folder = new URL("../../build/wasm/", import.meta.url);

// What a path names, as the page gives it: {name: bytes} of a folder's files, or of the one file.
export function filesOf(given) {
  const inside = (at, name) =>
    statSync(at).isDirectory() ? readdirSync(at).flatMap((each) => inside(path.join(at, each), `${name}/${each}`)) : [[name, readFileSync(at)]];
  return Object.fromEntries(inside(given, `/${path.basename(given)}`));
}

export async function load() {
  const { default: create } = await import(fileURLToPath(new URL("attend_models.mjs", folder)));
  const told = []; // the shares that the last request was done
  const module = await create({ wasmBinary: readFileSync(new URL("attend_models.wasm", folder)), progress: (share) => told.push(share) });
  const withText = (text, use) => {
    const bytes = module.lengthBytesUTF8(text) + 1;
    const at = module._malloc(bytes) >>> 0;
    module.stringToUTF8(text, at, bytes);
    try {
      return use(at);
    } finally {
      module._free(at);
    }
  };

  const ask = (request) => {
    told.length = 0;
    const text = typeof request === "string" ? request : JSON.stringify(request);
    return JSON.parse(withText(text, (at) => module.UTF8ToString(module._attend_model(at) >>> 0)));
  };
  // Whether there is room for it, and its bytes, if given, are there.
  const put = (name, bytes, size = bytes.length) => {
    const at = withText(name, (text) => module._attend_file(text, size)) >>> 0;
    if (at !== 0 && bytes) module.HEAPU8.set(bytes, at);
    return at !== 0;
  };
  // A file beside the model that is open.
  const more = (name, bytes) => {
    const at = withText(name, (text) => module._attend_more(text, bytes.length)) >>> 0;
    if (at !== 0) module.HEAPU8.set(bytes, at);
    return at !== 0;
  };
  // opened: the model's path, or "recording:" and a recording's.
  const open = (files, opened = Object.keys(files)[0].split("/").slice(0, 2).join("/")) => {
    for (const [name, bytes] of Object.entries(files))
      if (!put(name, bytes)) return { error: { code: "out_of_memory", message: `no room for ${name}` } };
    const [, recording] = opened.match(/^recording:(.*)/) ?? [];
    return ask(recording ? { do: "recording", path: recording } : { do: "open", path: opened });
  };
  // A tensor's numbers: a view of the module's memory, which the next request overwrites.
  const numbers = ({ shape, at, dtype }) => {
    const count = shape.reduce((product, size) => product * size, 1);
    if (dtype === "i64") return Array.from(new BigInt64Array(module.HEAPU8.buffer, at, count), Number);
    return module.HEAPF32.subarray(at / 4, at / 4 + count);
  };
  return { module, ask, put, more, open, numbers, told };
}
