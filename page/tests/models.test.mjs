// The module for models has the numbers of the native library, and survives any bytes. MODELS: the folder that
// tests/wasm/native_models.cpp wrote (scripts/test_page_engine.sh).
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { filesOf, load } from "./models.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const made = process.env.MODELS;
const { module, ask, put, more, open, numbers, told } = await load();

const native = (name) => JSON.parse(readFileSync(path.join(made, `${name}.json`), "utf8"));
const answered = (request) => {
  const answer = ask(request);
  assert.equal(answer.error, undefined, `${JSON.stringify(request)}: ${answer.error?.message}`);
  return answer;
};

// Within 1e-5, of larger ones relatively.
const isNear = (got, wanted) => Math.abs(got - wanted) <= 1e-5 * Math.max(1, Math.abs(wanted));
function expectTensor(tensor, wanted, what) {
  assert.deepEqual(tensor.shape, wanted.shape, what);
  const got = numbers(tensor);
  const place = wanted.values.findIndex((value, i) => !isNear(got[i], value));
  assert.equal(place, -1, `${what}[${place}] is ${got[place]}, the native library has ${wanted.values[place]}`);
}
function expectTensors(tensors, wanted, what) {
  for (const [name, value] of Object.entries(wanted)) expectTensor(tensors[name], value, `${what}: ${name}`);
}
// Anything that JSON has, with numbers that are near.
function expectNear(got, wanted, what) {
  if (typeof wanted === "number") return assert.ok(isNear(got, wanted), `${what} is ${got}, the native library has ${wanted}`);
  if (wanted === null || typeof wanted !== "object") return assert.equal(got, wanted, what);
  assert.deepEqual(Object.keys(got), Object.keys(wanted), what);
  for (const key of Object.keys(wanted)) expectNear(got[key], wanted[key], `${what}.${key}`);
}

// What a view has of all heads, and of telling ones as many as are wanted; its layers' maps as values.
const names = ["schema_version", "model", "item", "by", "tokens", "decoder_tokens", "layers", "heads"];
function expectView(view, { heads, telling }, what) {
  expectNear(Object.fromEntries(names.map((name) => [name, view[name]])), heads, `${what}: heads`);
  expectNear(view.telling.slice(0, telling.length), telling, `${what}: telling heads`);
  const maps = view.layers.map((_, layer) => [...numbers(view.tensors[layer])]);
  // Where each query looks: falling, and as the maps have it.
  assert.equal(view.looks.length, Math.max(...view.layers.filter(({ kind }) => kind === "self").map(({ queries }) => queries)));
  view.looks.forEach((links, query) => links.forEach(({ layer, head, key, weight }, n) => {
    const { heads: own, queries, keys, kind } = view.layers[layer];
    assert.ok(kind === "self" && Math.abs(key - query) > 1 && (n === 0 || weight <= links[n - 1].weight), `${what}: looks`);
    if (view.by === "weight") assert.ok(isNear(weight, maps[layer][(own.indexOf(head) * queries + query) * keys + key]), `${what}: looks of ${query}`);
  }));
  return maps;
}

// Of each head: its weights, by weight and by norm, its maps, and what its steps come to.
function expectHeads(layers, maps, wanted, what) {
  layers.forEach(({ name, heads, queries, keys }, l) =>
    heads.forEach((_, h) => {
      const here = `${what}: ${l}.${h}`;
      const weights = wanted.weights[l][h];
      expectTensor(answered({ do: "weights", layer: l, head: h }).tensors.weights, weights, `${here} weights`);
      expectTensor(answered({ do: "weights", layer: l, head: h, by: "norm" }).tensors.weights, wanted.carried[l][h], `${here} carried`);
      // What is hidden is NaN in a map.
      const own = [...numbers(answered({ do: "map", layer: l, head: h }).tensors.map)];
      own.forEach((value, n) => assert.ok(Number.isNaN(value) ? weights.values[n] === 0 : isNear(value, weights.values[n]), `${here} map[${n}]`));
      assert.deepEqual(maps[l].slice(h * queries * keys, (h + 1) * queries * keys), own, `${here} maps`);
      const [rows, cols] = [[1, Math.min(4, queries)], [0, Math.min(3, keys)]];
      const part = answered({ do: "map", layer: l, head: h, queries: rows, keys: cols });
      assert.deepEqual([part.queries, part.keys], [rows, cols]);
      const cells = own.filter((_, n) => Math.floor(n / keys) >= rows[0] && Math.floor(n / keys) < rows[1] && n % keys < cols[1]);
      assert.deepEqual([...numbers(part.tensors.map)], cells, `${here} part`);
      const steps = answered({ do: "steps", layer: l, head: h }).tensors;
      expectTensor(steps.weights, weights, `${here} steps`);
      const z = wanted.contexts[name];
      assert.equal(steps.context !== undefined, z !== undefined || name.startsWith("decoder."), `${here} has values`);
      if (!z) return;
      const size = z.shape[1] / heads.length;
      const context = { shape: [queries, size], values: z.values.filter((_, n) => Math.floor((n % z.shape[1]) / size) === h) };
      const isOut = wanted.out.some(([layer, head]) => new RegExp(`^(decoder\\.)?${layer}\\.self$`).test(name) && head === h);
      if (!isOut) expectTensor(steps.context, context, `${here} context`);
    }),
  );
}

function expectRun(answer, wanted, what) {
  const { weights, carried, heads, telling, contexts, ...tensors } = wanted;
  expectTensors(answer.tensors, tensors, what);
  const maps = expectView(answer, { heads, telling }, what);
  const again = answered({ do: "view" });
  assert.deepEqual(expectView(again, { heads, telling }, `${what}, once more`), maps);
  assert.equal(answered({ do: "view", by: "norm" }).by, "norm");
  expectHeads(answer.layers, maps, { weights, carried, contexts, out: what === "run" ? [] : without }, what);
}

const without = [[0, 1], [1, 0]];
const cosine = (a, b) => {
  const dot = (x, y) => x.reduce((sum, value, n) => sum + value * y[n], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
};

function generated(request) {
  const first = answered({ do: "grow", ...request });
  assert.equal(first.next.length, 10);
  const steps = [];
  let last = first;
  while (steps.length < 12) {
    const likeliest = last.next[0].id;
    last = answered({ do: "step" });
    if (request.temperature === undefined) assert.equal(last.id, likeliest);
    steps.push(last.id);
  }
  return steps;
}

// From the answer back to the words: the sums, and what changes without each part.
function expectBack(wanted) {
  const bare = (part) => ({ ...part, without: null });
  const sides = ["query", "key", "read"];
  const trace = answered({ do: "trace", token: 5 });
  expectNear(trace, { ...wanted.trace, heads: wanted.trace.heads.map((head) => ({ ...head, wrote: bare(head.wrote), ...Object.fromEntries(sides.map((side) => [side, head[side].map(bare)])) })) }, "trace");
  for (const { wrote, query, key, read } of wanted.trace.heads)
    for (const [part, row] of [[wrote, trace.position], ...query.map((each) => [each, trace.position]), ...[...key, ...read].map((each) => [each, wrote.key])]) {
      const { kind, layer, head } = part;
      const { value } = part.without === null ? { value: null } : answered({ do: "without", kind, layer, ...(head !== undefined && { head }), row, token: 5 });
      expectNear(value, part.without, `without ${kind} ${layer} ${head} in ${row}`);
    }
  const { score, tensors } = answered({ do: "score", head: [1, 1], query: 2, key: 1 });
  const { score: whole, ...parts } = wanted.score;
  expectNear(score, whole, "score"), expectTensors(tensors, parts, "score");
  if (!wanted.circuit) return assert.match(ask({ do: "edges", corrupt: "a", token: 5 }).error.message, /encoder-decoder/);
  assert.match(ask({ do: "circuit", keep: 8 }).error.message, /nobody has asked for the edges/);
  const { clean, corrupt, count } = answered({ do: "edges", corrupt: wanted.corrupt, token: 5, against: 6 });
  expectNear({ clean, corrupt, count }, wanted.edges, "edges");
  assert.ok(told.length > 3 && told.at(-1) === 1 && told.every((share, n) => n === 0 || share > told[n - 1]), `progress: ${told}`);
  const sorted = ({ edges, ...rest }) => ({ ...rest, edges: [...edges].sort((a, b) => (a.source + a.receiver < b.source + b.receiver ? -1 : 1)) });
  expectNear(sorted(answered({ do: "circuit", keep: 8 })), sorted(wanted.circuit), "circuit");
}

// By a Jacobian lens, whose file is put beside the model.
function expectJacobian(name, wanted) {
  const bytes = readFileSync(path.join(made, `${name}.jlens.safetensors`));
  assert.match(ask({ do: "lens", jacobian: true }).error.message, /no Jacobian lens is open/);
  more("/other.safetensors", readFileSync(path.join(made, name === "gpt2" ? "decoder.jlens.safetensors" : "gpt2.jlens.safetensors")));
  assert.match(ask({ do: "jacobian", path: "/other.safetensors" }).error.message, /Jacobian/);
  assert.match(ask({ do: "jacobian", path: "/other.safetensors" }).error.message, /is not among the files/, "its bytes are gone");
  more("/own.safetensors", bytes);
  assert.equal(answered({ do: "jacobian", path: "/own.safetensors" }).prompts, 2);
  const { tensors } = answered({ do: "lens", top: 3, jacobian: true });
  expectTensors(tensors, wanted.jacobian, "lens by Jacobians");
}

for (const name of ["decoder", "q8_0.gguf", "q4_0.gguf", "gpt2", "encoder_decoder", "encoder"])
  test(`${name}: the native library's numbers`, () => {
    const wanted = native(name);
    const info = open(filesOf(path.join(made, name)));
    assert.equal(info.error, undefined, info.error?.message);
    for (const [key, value] of Object.entries(wanted.info)) assert.deepEqual(info[key], value, key);

    const { text, ids, decoder_ids } = wanted;
    const tokens = answered({ do: "tokens", text });
    assert.deepEqual(tokens.ids, ids);
    assert.equal(tokens.tokens.length, ids.length);
    const both = decoder_ids.length > 0 ? { decoder_ids } : {};
    for (const heads of [undefined, without]) {
      const answer = answered({ do: "run", text, norm: true, view: true, ...(heads && { without: heads }), ...both });
      assert.deepEqual(answer.ids, ids);
      expectRun(answer, heads ? wanted.without : wanted.run, heads ? "without two heads" : "run");
    }
    // The recording that the native library wrote is looked at as the page's own is.
    const file = path.join(made, `${name}.attend`);
    expectView(open({ "/x.attend": readFileSync(file) }, "recording:/x.attend"), wanted.run, "recorded");
    expectTensor(answered({ do: "weights", layer: 1, head: 1 }).tensors.weights, wanted.run.weights[1][1], "recorded: weights");
    assert.equal(answered({ do: "steps", layer: 1, head: 1 }).tensors.values, undefined, "a recording has no values");
    open(filesOf(path.join(made, name)));
    // What heads that are out change, and how near a second text is.
    const plain = answered({ do: "run", text, record: false, ...both });
    const vectorOf = (text, heads) => [...numbers(answered({ do: "run", text, record: false, without: heads }).tensors.embedding)];
    const { before, similarity } = answered({ do: "run", text, record: false, without, before: true, beside: "a cat slept", ...both });
    if (info.decoder) assert.deepEqual([before, similarity], [{ next: plain.next }, undefined]);
    else {
      const [own, out, second, second_out] = [vectorOf(text, []), vectorOf(text, without), vectorOf("a cat slept", []), vectorOf("a cat slept", without)];
      expectNear(before, { own: cosine(own, out), similarity: cosine(own, second) }, "before");
      expectNear(similarity, cosine(out, second_out), "similarity");
      assert.equal(answered({ do: "run", text, beside: text }).similarity.toFixed(6), "1.000000");
    }
    answered({ do: "run", text, record: false, ...both });
    expectTensors(answered({ do: "ablate" }).tensors, wanted.ablation, "ablate");
    expectTensors(answered({ do: "ablate", heads: without }).tensors, wanted.ablation_of_two, "ablate two");
    if (!info.decoder) {
      expectTensor(answered({ do: "embed", sentences: [text, "a cat slept"] }).tensors.vectors, wanted.vectors, "vectors");
      return;
    }
    const whyIs = (request, value, what) => {
      const { tensors, ...answer } = answered({ do: "why", ...request });
      for (const [key, each] of Object.entries(value))
        if (typeof each === "number") assert.ok(isNear(answer[key], each), `${what}: ${key} is ${answer[key]}, not ${each}`);
        else expectTensor(tensors[key], each, `${what}: ${key}`);
    };
    whyIs({ token: 5, position: 1 }, wanted.why, "why");
    whyIs({}, wanted.why_last, "why, the last");
    expectBack(wanted);
    const lens = answered({ do: "lens", top: 3 });
    expectTensors(lens.tensors, wanted.lens, "lens");
    if (wanted.jacobian) expectJacobian(name, wanted);
    // Why, with the lens at its position.
    const { position, tokens: lensed, tensors } = answered({ do: "why", token: 5, lens: 3 });
    const [layers, count] = wanted.lens.ids.shape;
    const rows = (all) => Array.from({ length: layers }, (_, layer) => all.slice((layer * count + position) * 3, (layer * count + position + 1) * 3)).flat();
    for (const each of ["ids", "log_probabilities"]) expectTensor(tensors[each], { shape: [layers, 1, 3], values: rows(wanted.lens[each].values) }, `why's lens: ${each}`);
    assert.deepEqual(lensed, rows(lens.tokens));
    assert.deepEqual(generated({ text }), wanted.generated);
    // Of the text that has grown, from its cache and without.
    const { tensors: grown } = answered({ do: "why" });
    const kept = { shape: grown.heads.shape, values: [...numbers(grown.heads)] };
    if (!info.encoder_decoder) {
      answered({ do: "run", ids: [...ids, ...wanted.generated], record: false });
      expectTensor(answered({ do: "why" }).tensors.heads, kept, "why, of what was written");
    }
    assert.deepEqual(generated({ text, temperature: 1.5, top_k: 50, top_p: 0.9, seed: 3 }), wanted.drawn);
    assert.deepEqual(generated({ text, without }), wanted.generated_without);
  });

test("texts become the ids of the package tokenizers", () => {
  const files = filesOf(path.join(made, "vocabulary"));
  const tokenizers = JSON.parse(readFileSync(`${root}tests/golden/tokenizers.json`, "utf8"));
  assert.equal(tokenizers.length, 9);
  for (const { name, tokenizer, cases } of tokenizers) {
    const info = open({ ...files, "/vocabulary/tokenizer.json": Buffer.from(JSON.stringify(tokenizer)) });
    assert.equal(info.error, undefined, `${name}: ${info.error?.message}`);
    for (const one of cases) {
      const what = `${name}: ${JSON.stringify([one.text, one.pair])}`;
      const found = answered({ do: "tokens", text: one.text, second: one.pair });
      assert.deepEqual(found.ids, one.ids, what);
      assert.deepEqual(found.offsets, one.offsets, what);
      assert.deepEqual(found.texts, one.texts, what);
      assert.deepEqual(found.special.map(Number), one.special, what);
      assert.equal(answered({ do: "decode", ids: one.ids }).text, one.decoded, what);
    }
  }
});

// ---- What is no model ----

const good = filesOf(path.join(made, "q8_0.gguf"));
const works = () => {
  const info = open(good);
  assert.equal(info.error, undefined, info.error?.message);
  assert.equal(answered({ do: "run", text: "a cat" }).next.length, 10);
};
// It is refused in words, or used.
function survives(files, what) {
  const info = open(files);
  if (info.error) {
    assert.match(info.error.code, /^bad_|^out_of_memory$/, what);
    return assert.ok(info.error.message.length > 10, what);
  }
  for (const request of [{ do: "tokens", text: "a text, 12 — 猫" }, { do: "run", ids: [0, 1], view: true, before: true, beside: "a" }]) ask(request);
  if (info.decoder) for (const request of [{ do: "grow", ids: [0, 1] }, { do: "step" }, { do: "why" }]) ask(request);
}

const corpus = (name) => {
  const folder = `${root}tests/fuzz/corpus/${name}`;
  return readdirSync(folder).map((file) => [`${name}/${file}`, readFileSync(path.join(folder, file))]);
};
const isGguf = (bytes) => bytes.subarray(0, 4).toString("latin1") === "GGUF";
const first = (bytes) => bytes.subarray(0, bytes.indexOf(0) < 0 ? bytes.length : bytes.indexOf(0));

test("hostile files are refused in words, and the next model works", () => {
  const all = [...corpus("gguf"), ...corpus("model"), ...corpus("tokenizer")];
  assert.ok(all.length > 90);
  const folder = filesOf(path.join(made, "decoder"));
  for (const [name, bytes] of all) {
    if (isGguf(bytes)) survives({ "/x.gguf": bytes }, name);
    else survives({ ...folder, [name.startsWith("model/") ? "/decoder/config.json" : "/decoder/tokenizer.json"]: first(bytes) }, name);
  }
  works();
});

test("a file that is cut or changed anywhere", () => {
  const bytes = Object.values(good)[0];
  for (let n = 0; n < 120; ++n) {
    const changed = Buffer.from(bytes);
    // Where it says what it is: its first bytes, and those at the tensors' table.
    for (let k = 0; k <= n % 3; ++k) changed[(n * 7919 + k * 104729) % Math.min(bytes.length, 9000)] ^= 1 << (n % 8);
    survives({ "/x.gguf": changed }, `change ${n}`);
    survives({ "/x.gguf": bytes.subarray(0, Math.floor((bytes.length * n) / 120)) }, `cut ${n}`);
  }
  works();
});

test("errors say what is wrong", () => {
  ask({ do: "close" });
  const refused = [
    ["{", "bad_value", "the request is no JSON"],
    ["[1]", "bad_value", "the request is no JSON object"],
    [{}, "bad_value", "do is missing"],
    [{ do: "dance" }, "bad_value", "nothing is called 'dance'"],
    [{ do: "run", text: "a" }, "bad_value", "no model is open"],
    [{ do: "open", path: "/none.gguf" }, "bad_file", "'/none.gguf' is not among the files that were given"],
  ];
  const of_a_model = [
    [{ do: "weights", layer: 0, head: 0 }, "bad_value", "no text was run"],
    [{ do: "step" }, "bad_value", "no text grows"],
    [{ do: "run" }, "bad_value", "text is missing"],
    [{ do: "run", text: 1 }, "bad_value", "text is 1, expected a text"],
    [{ do: "run", text: "a", txt: "b" }, "bad_value", "there is no option 'txt'"],
    [{ do: "run", ids: [0, "1"] }, "bad_value", 'ids is "1", expected a whole number'],
    [{ do: "run", ids: [] }, "bad_value", "ids"],
    [{ do: "run", ids: [256] }, "bad_value", "256"],
    [{ do: "run", text: "a".repeat(65) }, "bad_value", "65"],
    [{ do: "run", text: "a", without: [[2, 0]] }, "bad_value", "2"],
    [{ do: "run", text: "a", without: [0] }, "bad_value", "without is 0, expected pairs"],
    [{ do: "why", token: "two tokens" }, "bad_value", "token"],
    [{ do: "why", token: 1.5 }, "bad_value", "token is 1.5, expected an id or a text"],
    [{ do: "without", kind: "bias", token: 5 }, "bad_value", 'kind is "bias"'],
    [{ do: "without", kind: "word", token: 5 }, "bad_value", 'kind is "word"'],
    [{ do: "score", head: [9, 0], query: 0, key: 0 }, "bad_value", "layer is 9"],
    [{ do: "edges", corrupt: "a" }, "bad_value", "token is missing"],
    [{ do: "edges", corrupt: "a longer one", token: 5 }, "bad_value", "the corrupt one 12, expected equal numbers"],
    [{ do: "grow", text: "a", top_p: 2 }, "bad_value", "top_p"],
    [{ do: "run", text: "a", chat: true }, "bad_file", "chat template"],
    [{ do: "recording", path: "/x.gguf" }, "bad_file", "/x.gguf"],
  ];
  const check = ([request, code, message]) => {
    const { error } = ask(request);
    const what = JSON.stringify(request).slice(0, 80);
    assert.equal(error?.code, code, what);
    assert.ok(error.message.includes(message), `${what}: ${error.message}`);
  };
  refused.forEach(check);
  open(good);
  of_a_model.forEach(check);
  works();
});

test("a model that is too large is refused before its bytes are read", () => {
  assert.equal(put("/large.gguf", undefined, 6e9), false);
  assert.equal(put("/large.gguf", undefined, 4.2e9), false);
  assert.equal(put("/large.gguf", undefined, -1), false);
  works();
});

test("models leave no memory behind", () => {
  works();
  const bytes = module.HEAPU8.length;
  for (let n = 0; n < 40; ++n) works();
  assert.equal(module.HEAPU8.length, bytes);
});
