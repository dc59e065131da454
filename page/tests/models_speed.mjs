// How long the module for models takes under Node: opening, a text's pass, and each token that follows.
// Usage: node models_speed.mjs MODEL [TEXT]; MODEL is a folder or a .gguf file.
import { filesOf, load } from "./models.mjs";

const [given, text = "the animal did not cross the street because it was too tired"] = process.argv.slice(2);
const { module, ask, open } = await load();
const timed = (use) => {
  const begin = performance.now();
  const answer = use();
  if (answer.error) throw new Error(answer.error.message);
  return [performance.now() - begin, answer];
};
const median = (use, times = 7) => Array.from({ length: times }, () => timed(use)[0]).sort((a, b) => a - b)[times >> 1];
const say = (what, ms) => console.log(`${what}: ${ms.toFixed(1)} ms`);

const files = filesOf(given);
const bytes = Object.values(files).reduce((sum, each) => sum + each.length, 0);
const [opening, info] = timed(() => open(files));
console.log(`${info.type}, ${info.formats}, ${bytes} bytes of files; ${module.HEAPU8.length} bytes of memory when it is open`);
say("open", opening);
const [, { ids }] = timed(() => ask({ do: "tokens", text }));
say(`tokens (${ids.length})`, median(() => ask({ do: "tokens", text })));
say("run, without a recording", median(() => ask({ do: "run", text, record: false })));
say("run, all heads recorded", median(() => ask({ do: "run", text })));
say("its view", median(() => ask({ do: "view" })));
say("weights of a head", median(() => ask({ do: "weights", layer: 0, head: 0 })));
if (info.decoder) {
  const many = Array.from({ length: 64 }, (_, n) => ids[n % ids.length]);
  say("64 tokens", median(() => ask({ do: "run", ids: many, record: false })));
  ask({ do: "grow", text });
  const steps = Array.from({ length: 48 }, () => timed(() => ask({ do: "step" }))[0]).sort((a, b) => a - b);
  console.log(`a step: ${steps[24].toFixed(1)} ms, ${(1000 / steps[24]).toFixed(1)} tokens/s`);
  say("why", median(() => ask({ do: "why" })));
  ask({ do: "run", text, record: false });
  say("lens", median(() => ask({ do: "lens" }), 3));
}
console.log(`${module.HEAPU8.length} bytes of memory at last`);
