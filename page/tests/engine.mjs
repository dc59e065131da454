// The module under Node, as the page has it: its bytes are given, its numbers are taken from its memory.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = new URL("../../build/wasm/", import.meta.url);
export const moduleText = readFileSync(new URL("attend.mjs", folder), "utf8");

export async function load() {
  const { default: create } = await import(fileURLToPath(new URL("attend.mjs", folder)));
  const module = await create({ wasmBinary: readFileSync(new URL("attend.wasm", folder)) });

  // What the module answers to a text, or to an object as JSON.
  const ask = (request) => {
    const text = typeof request === "string" ? request : JSON.stringify(request);
    const bytes = module.lengthBytesUTF8(text) + 1;
    const at = module._malloc(bytes);
    module.stringToUTF8(text, at, bytes);
    const answer = JSON.parse(module.UTF8ToString(module._attend_explain(at)));
    module._free(at);
    return answer;
  };
  // A tensor's numbers: a view of the module's memory, which the next request overwrites.
  const numbers = ({ shape, at }) => module.HEAPF32.subarray(at / 4, at / 4 + shape.reduce((product, size) => product * size, 1));
  const listed = (list) => () => JSON.parse(module.UTF8ToString(module[`_attend_${list}`]()));
  return { module, ask, numbers, presets: listed("presets"), defaults: listed("defaults") };
}
