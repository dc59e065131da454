// The engine gives the numbers of the command, bit for bit, those of the documents, and errors that say what is wrong.
// ATTEND: the command to compare with (build/release/attend).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

import { load, moduleText } from "./engine.mjs";
import { readNpz } from "./npz.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const command = process.env.ATTEND ?? `${root}build/release/attend`;
const { module, ask, numbers, presets, defaults } = await load();

// The command's own words for a request.
function native({ preset, text, second_text, causal, positions, scale, ...rest }) {
  const options = Object.entries(rest).flatMap(([name, value]) => [`--${name.replaceAll("_", "-")}`, `${value}`]);
  if (preset) options.push("--preset", preset);
  if (second_text !== undefined) options.push("--cross", second_text);
  if (causal) options.push("--causal");
  if (positions) options.push("--positions");
  if (scale === false) options.push("--no-scale");
  if (text !== undefined) options.push("--", text);
  return JSON.parse(execFileSync(command, ["explain", "--json", ...options], { maxBuffer: 2 ** 28 }));
}

// JSON has no infinity; of NaN there is none.
const numberOf = (value) => (value === null ? -Infinity : Math.fround(value));

function expectNative(request) {
  const what = JSON.stringify(request);
  const [expected, answer] = [native(request), ask(request)];
  assert.equal(answer.error, undefined, what);
  for (const name of ["preset", "made", "ids", "weights_in_out"]) assert.deepEqual(answer[name], expected[name], `${what}: ${name}`);
  assert.deepEqual(answer.ids_2, expected.ids_2 ?? [], what);
  const shown = (tokens = []) => tokens.map((token) => token.replaceAll("\u0007", "\ufffd"));
  assert.deepEqual([answer.tokens, answer.tokens_2], [shown(expected.tokens), shown(expected.tokens_2)], what);
  const { entropy, ...tensors } = answer.tensors;
  assert.deepEqual(Object.keys(tensors), Object.keys(expected.tensors), what);
  for (const [name, tensor] of Object.entries(tensors)) {
    const wanted = expected.tensors[name].flat(Infinity);
    const got = numbers(tensor);
    assert.equal(got.length, wanted.length, `${what}: ${name}`);
    const place = wanted.findIndex((value, i) => !Object.is(got[i], numberOf(value)));
    assert.equal(place, -1, `${what}: ${name}[${place}] is ${got[place]}, the command has ${wanted[place]}`);
  }
  expectEntropy(answer);
}

// -sum of w ln w, which the module has from lse and the scores: within the rounding of those in f32.
function expectEntropy(answer) {
  const keys = answer.tensors.weights.shape.at(-1);
  const weights = numbers(answer.tensors.weights);
  assert.deepEqual(answer.tensors.entropy.shape, answer.tensors.weights.shape.slice(0, -1));
  numbers(answer.tensors.entropy).forEach((entropy, row) => {
    let sum = 0;
    for (const w of weights.subarray(row * keys, (row + 1) * keys)) sum -= w > 0 ? w * Math.log(w) : 0;
    assert.ok(Math.abs(entropy - sum) < 1e-5, `entropy of row ${row}: ${entropy}, the weights' is ${sum}`);
  });
}

test("it needs no file, no address and no eval", () => {
  assert.doesNotMatch(moduleText, /\beval\(|new Function|import\.meta|require\(/);
});

test("every preset has the command's bits", () => {
  assert.equal(presets().length, 9);
  for (const { name } of presets()) expectNative({ preset: name });
});

test("the defaults are what a text alone is made with", () => {
  expectNative({ text: "the cat" });
  assert.deepEqual(ask({ text: "the cat" }).made, { text: "the cat", ...defaults() });
  assert.deepEqual(ask({ text: "the cat", ...defaults() }).made, { text: "the cat", ...defaults() });
});

// A small generator, so that every run asks the same.
let state = 12345;
const below = (n) => Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * n);
const words = ["the", "cat", "sat", "on", "it", "Ωmega", "naïve", "猫", "🐈", "don't", "x-ray", "3.14", "to", "\u0007", "—"];
const sentence = (most) => Array.from({ length: 1 + below(most) }, () => words[below(words.length)]).join(" ");

test("random sentences and options have the command's bits", () => {
  for (let n = 0; n < 60; ++n) {
    const request = { text: sentence(30), seed: below(2 ** 31), embedding_size: 1 + below(40), d_k: 1 + below(40), d_v: 1 + below(40), heads: below(5) };
    if (below(3) === 0) request.weights = ["linear", "uniform"][below(2)];
    if (below(2)) request.positions = true;
    if (below(3) === 0) request.scale = false;
    if (below(3) === 0) request.second_text = sentence(30);
    else {
      if (below(2)) request.causal = true;
      if (below(2)) request.window = below(8);
    }
    expectNative(request);
  }
});

test("two hundred words, and a request that is what another was made of", () => {
  const request = { text: Array.from({ length: 200 }, (_, i) => `w${i}`).join(" "), heads: 4, d_k: 64, d_v: 64, embedding_size: 64 };
  expectNative(request);
  const { made } = ask(request);
  assert.deepEqual(ask(made).made, made);
});

// tests/explain/documents_test.cpp has the same names and tolerance.
const life = { w_query: "W_query", w_key: "W_key", w_value: "W_value", queries: "queries", keys: "keys", values: "values", scores: "omega", weights: "weights", context: "context" };
const prefixed = (prefix, names) => Object.fromEntries(Object.entries(names).map(([ours, theirs]) => [ours, prefix + theirs]));
const same = (...names) => Object.fromEntries(names.map((name) => [name, name]));
const oneHead = { embeddings: "x", ...life };
const heads = { embeddings: "x", ...prefixed("multi.", life) };
const projections = ["w_query", "w_key", "w_value", "queries", "keys", "values", "weights"];
const documents = [
  ["life-continued", "000", oneHead],
  ["life-continued-multihead", "000", heads],
  ["journey", "001", { ...life, embeddings: "inputs", scores: "attn_scores", weights: "attn_weights", context: "context_vec" }],
  ["journey-linear", "001", { embeddings: "inputs", w_query: "v2.W_query", w_key: "v2.W_key", w_value: "v2.W_value", weights: "v2.attn_weights", context: "v2.context_vec" }],
  ["life", "002", oneHead],
  ["life-multihead", "002", heads],
  ["life-cross", "002", { embeddings: "x", embeddings_2: "cross.x2", ...prefixed("cross.", life) }],
  ["my-name", "003", { embeddings: "x", ...same(...projections, "context") }],
  ["my-name-multihead", "003", { embeddings: "x", ...prefixed("multi.", { ...same(...projections, "w_output", "concat_heads", "output"), scaled_scores: "scores", context: "head_outputs" }) }],
  ["life", "004", oneHead],
  ["life-multihead", "004", heads],
];

test("every number of the documents", () => {
  for (const [preset, document, names] of documents) {
    const golden = readNpz(`${root}tests/golden/document_${document}.npz`);
    const answer = ask({ preset });
    for (const [ours, theirs] of Object.entries(names)) {
      const what = `${preset} ${document} ${ours}`;
      const [got, wanted] = [numbers(answer.tensors[ours]), golden[theirs]];
      assert.deepEqual(answer.tensors[ours].shape, wanted.shape, what);
      const drawn = /^(embeddings|w_)/.test(ours);
      const largest = Math.max(...wanted.values.map(Math.abs));
      wanted.values.forEach((value, i) => {
        assert.ok(Math.abs(got[i] - value) <= (drawn ? 0 : 2e-6 * largest), `${what}[${i}] is ${got[i]}, expected ${value}`);
      });
    }
    if (golden.ids) assert.deepEqual(answer.ids, golden.ids.values, preset);
  }
});

const printed = JSON.parse(readFileSync(new URL("printed.json", import.meta.url)));
test("every digit that the documents print", () => {
  for (const [preset, tensors] of Object.entries(printed))
    for (const { tensor, row, numbers: rows } of tensors) {
      const { shape, ...rest } = ask({ preset }).tensors[tensor];
      const got = numbers({ shape, ...rest });
      rows.forEach((digits, i) => {
        const expected = [...got.subarray((row + i) * shape[1], (row + i) * shape[1] + digits.length)].map((value) => value.toFixed(4));
        assert.deepEqual(expected, digits, `${preset} ${tensor}, row ${row + i}`);
      });
    }
});

test("errors say what is wrong, and the next request is answered", () => {
  const refused = [
    ["{", "bad_value", "the request is no JSON"],
    ["\"\xff", "bad_value", "the request is no JSON"],
    ["[1]", "bad_value", "the request is no JSON object"],
    [{ text: " " }, "bad_value", "the sentence has no words"],
    [{ txt: "a" }, "bad_value", "there is no option 'txt'"],
    [{ preset: "x" }, "bad_value", "no preset is called 'x'"],
    [{ preset: 1 }, "bad_value", "preset is 1, expected a text"],
    [{ preset: "life", seed: 1 }, "bad_value", "without other options"],
    [{ text: 1 }, "bad_value", "text is 1, expected a text"],
    [{ seed: -1 }, "bad_value", "seed is -1, expected a whole number from 0"],
    [{ d_k: 1.5 }, "bad_value", "d_k is 1.5, expected a whole number"],
    [{ d_v: "8" }, "bad_value", 'd_v is "8", expected a whole number'],
    [{ embedding_size: null }, "bad_value", "embedding_size is null, expected a whole number"],
    ['{"heads": 18446744073709551615}', "bad_value", "heads is 18446744073709551615, expected a whole number"],
    [{ weights: "normal" }, "bad_value", 'weights is "normal", expected "linear" or "uniform"'],
    [{ causal: 1 }, "bad_value", "causal is 1, expected true or false"],
    [{ scale: "no" }, "bad_value", 'scale is "no", expected true or false'],
    [{ window: -1 }, "bad_value", "window is -1"],
    [{ window: 1, second_text: "a" }, "bad_value", "window"],
    [{ causal: true, second_text: "a" }, "bad_value", "causal"],
    [{ d_k: 0 }, "bad_value", "d_k is 0, expected at least 1"],
    [{ d_k: 2 ** 32 }, "out_of_memory", "no memory for shape [4294967296,16]"],
    [{ d_k: 2 ** 40 }, "out_of_memory", "no memory for shape"],
    [{ text: "w ".repeat(40000) }, "out_of_memory", "no memory for shape [40000,40000]"],
  ];
  for (const [request, code, message] of refused) {
    const { error } = ask(request);
    const what = JSON.stringify(request).slice(0, 80);
    assert.equal(error?.code, code, what);
    assert.ok(error.message.includes(message), `${what}: ${error.message}`);
    assert.equal(ask({ preset: "life" }).error, undefined, what);
  }
});

test("words are shown as the steps show them", () => {
  assert.deepEqual(ask({ text: "a\u0007b \u202ec" }).tokens, ["a\ufffdb", "\ufffdc"]);
});

test("requests leave no memory behind", () => {
  const request = { text: "the cat sat on the mat", heads: 3, d_k: 256 };
  ask(request);
  const bytes = module.HEAPU8.length;
  for (let n = 0; n < 500; ++n) ask(n % 2 ? request : { text: " " });
  assert.equal(module.HEAPU8.length, bytes);
});
