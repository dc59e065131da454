// The explorer in a browser: its numbers are the native library's, its views work for everyone, and nothing leaves it.
// MODELS: the folder that tests/wasm/native_models.cpp wrote; MINILM: MiniLM's folder, as Hugging Face has it.
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { close_browser, command, drawn, framed, open_browser, problemsOf, scratch, until, written } from "./browser.mjs";
import { npy } from "./npz.mjs";

process.env.ATTEND_TARGET = "baseline"; // whose kernels the page's module has
const { MODELS: models, MINILM: minilm } = process.env;
const root = fileURLToPath(new URL("../../", import.meta.url));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const sentence = "the animal did not cross the street because it was too tired";
const quantized = scratch("minilm.gguf");

before(async () => {
  command("quantize", minilm, "-o", quantized, "--type", "Q8_0");
  await open_browser();
});
after(close_browser);

const explored = (args, options) => written(args, ".looking", options);
const live = (model, text, ...more) => ["model", model, text, "--live", ...more];
// What the command says, and each layer's exact weights [H,Tq,Tk].
const native = (model, text, ...more) => {
  const json = JSON.parse(command("model", model, text, "--json", ...more));
  const recording = scratch("native.attend");
  command("model", model, text, "-o", recording);
  const weights = json.heads.map(({ layer }) => layer).filter((name, place, all) => all.indexOf(name) === place).map((name) => {
    command("show", recording, "--layer", name, "-o", scratch("layer.npy"));
    return npy(readFileSync(scratch("layer.npy")));
  });
  return { ...json, weights };
};
const typed = async (page, text) => {
  await page.getByLabel("The text", { exact: true }).fill(text);
  await ready(page);
};
const ready = async (page) => {
  await until(page, () => ["ready", "failed"].includes(window.attend.state.status));
  await drawn(page);
};
const mapOf = (page, head, queries, keys, most = 512) =>
  page.evaluate(async ([head, queries, keys, most]) => {
    const { grid, ...of } = await window.attend.map(head, queries, keys, most);
    return { ...of, rows: grid.rows, cols: grid.cols, data: Array.from(grid.data) };
  }, [head, queries, keys, most]);
const near = (got, wanted, most, what) => assert.ok(Math.abs(got - wanted) <= most, `${what} is ${got}, the native library has ${wanted}`);

// Every head's map: what is hidden is NaN in the page, and 0 in weights.
const isNative = async (page, { weights }) => {
  let count = 0;
  for (const [layer, { shape: [heads, rows, cols], values }] of weights.entries())
    for (let head = 0; head < heads; ++head) {
      const map = await mapOf(page, [layer, head], [0, rows], [0, cols]);
      assert.deepEqual([map.rows, map.cols], [rows, cols]);
      map.data.forEach((value, n) => near(value === null || Number.isNaN(value) ? 0 : value, values[head * rows * cols + n], 1e-6, `${layer}.${head}[${n}]`));
      ++count;
    }
  return count;
};

test("the selected word stays selected in another text", async () => {
  const page = await explored(live(minilm, sentence));
  const selected = () => page.evaluate(() => [window.attend.state.pass.tokens[window.attend.state.locked.query], window.attend.state.locked.query]);
  assert.deepEqual(await selected(), ["it", 9]);
  await typed(page, "in the end the animal did not cross the street because it was too tired");
  assert.deepEqual(await selected(), ["it", 12]);
  await typed(page, "in the end the animal did not cross the street because she was too tired");
  assert.deepEqual(await selected(), ["she", 12]);
  await typed(page, "a tired animal");
  assert.notEqual((await selected())[0], "[SEP]");
  await page.context().close();
});

test("MiniLM in one file: what does it look at", async () => {
  const page = await explored(live(minilm, sentence));
  const wanted = native(quantized, sentence);
  // It begins by weight: at "it", and the head that gives most to another word.
  assert.match(await page.locator(".looks h2").textContent(), /What does it look at\?/);
  const first = await page.locator(".looks button").first().textContent();
  const [, word, head, most] = first.match(/^(\S+) head (\S+) (\S+)$/);
  const { tokens, weights } = wanted;
  const [layer, number] = head.split(".").map(Number);
  const [, rows_, cols_] = weights[layer].shape;
  near(Number(most), weights[layer].values[(number * rows_ + 9) * cols_ + tokens.indexOf(word)], 0.00501, first);
  // By norm a word may carry more than a row takes in the mean: colours and legend end there, and the sum at the number shown.
  await page.locator('.overview [data-head="3.1"]').click();
  await page.locator(".tabs select").first().selectOption("norm");
  await ready(page);
  const rows = JSON.parse(command("model", quantized, sentence, "--head", "3.1", "--query", "9", "--by", "norm", "--json")).top;
  const shown = await page.locator(".top-keys li").evaluateAll((items) => items.map((item) => [item.querySelector("bdi").textContent, Number(item.querySelector("output").textContent)]));
  shown.slice(0, 5).forEach(([token, value], n) => {
    assert.equal(token, rows[n].token);
    near(value, rows[n].weight, value >= 0.0995 ? 0.00501 : 0.000501, token);
  });
  assert.ok(rows[0].weight > 1);
  const top = Math.max(...(await mapOf(page, [3, 1], [0, tokens.length], [0, tokens.length])).data);
  assert.ok(top >= rows[0].weight - 1e-4);
  assert.equal(await page.locator(".tabs .legend i").last().textContent(), String(Number(top.toPrecision(3))));
  await page.locator(".top-keys button").first().click();
  await page.locator("details.worked:not(.reasons) > summary").click();
  await page.locator("details.worked:not(.reasons) [data-shown]").waitFor();
  const [, once, factor, product] = (await page.locator("details.worked:not(.reasons) .formula").last().textContent()).match(/by norm: (\S+) × (\S+) = (\S+)/);
  near(Number(once) * Number(factor), Number(product), 2e-3, "the weight times what the key carries");
  near(Number(product), rows[0].weight, 1e-4, "what is shown");
  assert.equal(await page.locator("details.worked:not(.reasons) .products tr.rest").count(), 1);
  const products = await page.locator("details.worked:not(.reasons) .products tbody tr").evaluateAll((all) => all.map((row) => Number([...row.querySelectorAll("td")].at(-2).textContent)));
  near(products.reduce((sum, value) => sum + value, 0), Number(await page.locator("details.worked:not(.reasons) .products .total output").textContent()), 1e-3, "the products' sum");
  await page.locator(".tabs select").first().selectOption("weight");
  await ready(page);
  assert.equal(await isNative(page, wanted), 72);
  // Another sentence, typed.
  const other = "A doctor said that she would come; nobody believed unbelievable stories.";
  await typed(page, other);
  const next = native(quantized, other);
  assert.deepEqual(await page.locator(".head .tokens button bdi").allTextContents(), next.tokens);
  assert.equal(await isNative(page, next), 72);
  const names = await page.locator(".overview [role=gridcell]").evaluateAll((cells) => cells.map((cell) => cell.title));
  next.heads.forEach(({ name, labels }, n) => assert.ok(names[n].startsWith(`head ${name}: ${labels[0]?.name ?? ""}`), `${names[n]}: ${JSON.stringify(labels)}`));
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("what words received, what is saved, and a word that is looked for", async () => {
  const text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty twice twenty";
  const page = await explored(live(minilm, text), { acceptDownloads: true });
  await page.locator(".tabs select").first().selectOption("weight");
  await ready(page);
  await page.locator("[data-head='2.5']").click();
  const { weights, tokens } = native(quantized, text);
  const size = tokens.length;
  const own = weights[2].values.slice(5 * size * size, 6 * size * size);
  await page.locator(".strip select").selectOption("received");
  await drawn(page); // the row's weights are gone
  await until(page, () => /: [\d.]+$/.test(document.querySelector(".head .tokens button").title));
  const titles = await page.locator(".head .tokens button").evaluateAll((buttons) => buttons.map(({ title }) => Number(title.split(": ").at(-1))));
  titles.forEach((value, j) => near(value, Array.from({ length: size }, (_, i) => own[i * size + j]).reduce((sum, x) => sum + x, 0), value >= 0.0995 ? 0.00501 : 0.000501, `received by ${tokens[j]}`));
  const saved = async (what) => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByLabel("Save or copy").selectOption(what)]);
    return readFileSync(await download.path(), "utf8");
  };
  const csv = (await saved("CSV")).trim().split("\n").flatMap((line) => line.split(",").map(Number));
  csv.forEach((value, n) => near(value, own[n], 1e-6, `CSV[${n}]`));
  const svg = await saved("SVG");
  assert.ok(svg.startsWith("<svg") && (svg.match(/<rect/g) ?? []).length >= size * size);
  const digits = [...svg.matchAll(/font-size="10" fill="#[0f]{6}">([\d.]+)</g)].map(([, number]) => number);
  assert.deepEqual(digits, Array.from(own, (value) => value.toFixed(2)));
  assert.ok(svg.includes("head 2.5<"));
  assert.equal((await saved("PNG")).slice(1, 4), "PNG");
  assert.equal(JSON.parse(await saved("heads")).length, 72);
  await page.evaluate(() => { navigator.clipboard.writeText = async (lines) => { window.copied = lines; }; });
  const copied = async () => { await page.getByLabel("Save or copy").selectOption("Python"); return page.evaluate(() => window.copied); };
  assert.match(await copied(), /record\(ids, keep="qk"\)\nweights = recording\["2\.self"\]\.weights\(head=5\)\n$/);
  await page.locator(".tabs select").first().selectOption("norm");
  await ready(page);
  assert.match(await copied(), /record\(ids, keep="qk", key_sizes=True\)\nweights = recording\["2\.self"\]\.weights\(head=5, by="norm"\)\n$/);
  assert.ok((await saved("SVG")).includes("head 2.5, by norm<"));
  await page.getByLabel("find a word").fill("twenty");
  await page.keyboard.press("Enter");
  const first = await page.evaluate(() => window.attend.state.locked.query);
  await page.keyboard.press("Enter");
  assert.deepEqual([first, await page.evaluate(() => window.attend.state.locked.query)], [tokens.indexOf("twenty"), tokens.lastIndexOf("twenty")]);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("MiniLM: a second sentence, and heads taken out", async () => {
  const page = await explored(live(minilm, sentence, "--near", "a tired cow stayed on its side of the road"));
  const near_to = (...more) => JSON.parse(command("model", quantized, sentence, "--json", ...more));
  const text = () => page.locator(".near p").textContent();
  const similarity = near_to("--near", "a tired cow stayed on its side of the road").nearest[0].similarity;
  near(Number((await text()).match(/similarity (\S+)/)[1]), similarity, 0.51e-4, "similarity");
  await page.getByRole("button", { name: "Take it out" }).click();
  await ready(page);
  const head = (await page.locator(".head h2").first().textContent()).match(/[\d.]+$/)[0];
  const { cosine_distance: turned } = near_to("--without", head).without;
  near(Number((await page.locator(".without output").textContent())), 1 - turned, 0.51e-4, "similarity to its own");
  const [, now, was] = (await text()).match(/similarity (\S+) with these heads out; with all heads (\S+)/);
  near(Number(was), similarity, 0.51e-4, "with all heads");
  assert.notEqual(now, was);
  await page.getByRole("button", { name: "all heads back" }).click();
  await ready(page);
  assert.equal(await page.locator(".without").count(), 0);
  near(Number((await text()).match(/similarity (\S+)/)[1]), similarity, 0.51e-4, "put back");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

const percent = (share) => `${(share * 100).toFixed(share >= 0.0995 ? 0 : 1)} %`;
const decoder = () => path.join(models, "q8_0.gguf");
test("bytes of a character say which part of it they are; what has no token, and a text of nothing, are told", async () => {
  const page = await explored(live(decoder(), "a 猫 mat"));
  const tokens = () => page.locator(".head .tokens button bdi").allTextContents();
  assert.deepEqual((await tokens()).filter((token) => token.includes("猫")).map((token) => token.trim()), ["猫 1/3", "猫 2/3", "猫 3/3"]);
  assert.ok((await tokens()).every((token) => !token.includes("\ufffd")));
  await page.getByRole("switch", { name: "whole words" }).check();
  assert.deepEqual((await tokens()).filter((token) => token.includes("猫")).map((token) => token.trim()), ["猫"]);
  await page.getByLabel("The text", { exact: true }).fill("  ");
  await page.locator(".problem", { hasText: "the text is empty: what stands below is still of the last one" }).waitFor();
  await page.context().close();
  const encoder = await explored(live(minilm, "喜 it"));
  await encoder.locator(".unknown", { hasText: "[UNK] stands for what this model has no token for" }).waitFor();
  await encoder.getByLabel("The text", { exact: true }).fill("it");
  await until(encoder, () => !document.querySelector(".unknown"));
  await encoder.context().close();
});

test("a decoder: what comes next, why, and the lens", async () => {
  const text = "Whose mat is it? it is";
  const page = await explored(live(decoder(), text));
  const wanted = native(decoder(), text);
  const shown = await page.locator(".likeliest output").allTextContents();
  assert.deepEqual(shown, wanted.next.slice(0, 6).map(({ probability }) => percent(probability)));
  await isNative(page, wanted);
  // Of a byte alone that is no text the command can't be asked.
  const plain = wanted.next.slice(0, 6).findIndex(({ token }) => /^[ -~]$/.test(token));
  await page.locator(".likeliest button").nth(plain).click();
  await page.waitForSelector(".why");
  const state = await page.evaluate(() => {
    const { answer } = window.attend.state.why;
    return { token: answer.token, heads: Array.from(answer.tensors.heads.data) };
  });
  const { why } = JSON.parse(command("model", decoder(), text, "--json", "--why", wanted.next[plain].token));
  assert.equal(state.token, why.token);
  why.heads.flat(2).forEach((value, n) => near(state.heads[n], value, 1e-5, `heads[${n}]`));
  const sum = Number(await page.locator(".parts [data-sum]").getAttribute("data-sum"));
  near(sum, why.logit, 1e-4, "the parts' sum");
  near(Number(await page.locator(".parts [data-logit]").textContent()), why.logit, 0.51e-4, "the logit on screen");
  const { lens } = JSON.parse(command("model", decoder(), text, "--json", "--lens"));
  const last = lens.positions.length - 1;
  const probabilities = await page.locator(".lens tbody tr").evaluateAll((rows) => rows.map((row) => row.querySelectorAll("td")[1].textContent));
  assert.deepEqual(probabilities, lens.log_probabilities.map((layer) => percent(Math.exp(layer[last][0]))));
  // A part leads to its head.
  await page.locator(".parts tbody button").first().click();
  const name = await page.locator(".parts tbody button").first().textContent();
  assert.equal((await page.locator(".head h2").first().textContent()).toLowerCase(), name);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("from the answer back to the words, and a circuit", async () => {
  const text = "Whose mat is it? it is", other = "Whose cat is it? it is";
  const page = await explored(live(decoder(), text));
  const tokens = native(decoder(), text).next.filter(({ token }) => /^[ -~]$/.test(token));
  const [token, against] = [tokens[0], tokens[1]];
  await page.evaluate(([id, word]) => { window.attend.set({ against: word }); return window.attend.why(id); }, [token.id, against.token]);
  await page.getByRole("button", { name: "Trace it back" }).click();
  await ready(page);
  const asked = ["--json", "--why", token.token, "--against", against.token];
  const { trace } = JSON.parse(command("model", decoder(), text, ...asked, "--trace"));
  const { heads } = trace;
  assert.equal(await page.locator(".trace article").count(), heads.length);
  for (const [n, head] of heads.entries()) {
    const article = page.locator(".trace article").nth(n);
    const said = (await article.locator("> p").textContent()).replaceAll("−", "-");
    const [, name, wrote, without] = said.match(/head (\S+) wrote (\S+) of it .* number is ([-+.\d]+?)\.$/);
    assert.equal(name, `${head.wrote.layer}.${head.wrote.head}`);
    near(Number(wrote), head.wrote.value, 0.00501, "wrote"), near(Number(without), head.wrote.without, 0.00501, "without");
    const rows = await article.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.querySelectorAll("th, td:not(.bar)")].map((cell) => cell.textContent.replace("−", "-"))));
    const wanted = [...head.query, ...head.key, ...head.read];
    assert.equal(rows.length, wanted.length);
    wanted.forEach((part, row) => {
      const own = { head: `head ${part.layer}.${part.head}`, mlp: `MLP of layer ${part.layer}`, embedding: "the word itself", bias: "biases" }[part.kind];
      assert.equal(rows[row][0], own);
      near(Number(rows[row][1]), part.value, 0.00501, own), near(parseInt(rows[row][2]), part.share * 100, 0.501, `${own}, its share`);
      if (part.without !== null) near(Number(rows[row][3]), part.without, 0.00501, `without ${own}`);
      else assert.equal(rows[row][3] ?? "", "");
    });
  }
  // A head's name leads to what it read.
  await page.locator(".trace article > p button").first().click();
  const { head, query, key } = await page.evaluate(() => window.attend.state.locked);
  assert.deepEqual([head, query, key], [[heads[0].wrote.layer, heads[0].wrote.head], trace.position, heads[0].wrote.key]);
  await page.locator(".reasons summary").click();
  await page.waitForSelector(".reasons .lines");
  const score = page.locator(".reasons [data-score]");
  near(Number(await score.getAttribute("data-score")), heads[0].score, 1e-4, "the score");
  near(Number(await score.getAttribute("data-sum")), heads[0].score, 1e-4, "its sum");
  const first = await page.locator(".reasons .lines").first().locator("td").first().textContent();
  near(Number(first.replace("−", "-")), heads[0].query[0].value, 0.00501, "the largest part");
  // The circuit, and what changes without a node of it.
  await page.getByLabel("The other text").fill(other);
  await page.getByLabel("edges").selectOption("10");
  await page.getByRole("button", { name: "Find it" }).click();
  await page.waitForSelector(".circuit [data-faithfulness]");
  await ready(page);
  const { circuit } = JSON.parse(command("model", decoder(), text, ...asked, "--circuit", "--patch", other, "--edges", "10"));
  near(Number(await page.locator("[data-faithfulness]").getAttribute("data-faithfulness")), circuit.faithfulness, 1e-4, "faithfulness");
  assert.equal(await page.locator(".graph path:not(.joined)").count(), circuit.edges.length);
  const writer = circuit.edges.find(({ source }) => /^\d+\.\d+$|^mlp/.test(source)).source;
  const node = page.locator(`[data-node='${writer}']`);
  await node.focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("output[data-without]");
  const [, layer, number] = writer.match(/^(?:mlp )?(\d+)(?:\.(\d+))?$/);
  const changed = number === undefined ? null : JSON.parse(command("model", decoder(), text, ...asked, "--without", writer)).without.logit;
  if (changed !== null) near(Number(await page.locator("output[data-without]").getAttribute("data-without")), circuit.clean + changed, 1e-4, `without ${layer}.${number}`);
  // What is closed meanwhile stays closed.
  await page.evaluate(() => { void window.attend.traceBack(); window.attend.set({ why: null }); });
  await ready(page);
  assert.equal(await page.locator(".why").count(), 0);
  await page.evaluate(([id]) => window.attend.why(id), [token.id]);
  await page.getByLabel("The other text").fill(other);
  await page.getByRole("button", { name: "Find it" }).click();
  await page.waitForSelector(".graph");
  await ready(page);
  // A text of another length is refused in words, and what is there stays.
  await page.getByLabel("The other text").fill(`${other} so`);
  await page.getByRole("button", { name: "Find it" }).click();
  await until(page, () => document.querySelector("[role=alert]"));
  assert.match(await page.locator("[role=alert]").textContent(), /expected equal numbers/);
  assert.equal(await page.locator(".graph").count(), 1);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("what the layers mean for the last one, by a Jacobian lens from the reader's disk", async () => {
  const text = "Whose mat is it? it is", file = path.join(models, "q8_0.gguf.jlens.safetensors");
  const page = await explored(live(decoder(), text));
  await page.locator(".likeliest button").first().click();
  await page.waitForSelector(".why");
  const shares = () => page.locator(".lens tbody tr").evaluateAll((rows) => rows.map((row) => row.querySelectorAll("td")[1].textContent));
  const plain = await shares();
  await page.getByLabel("A model's file").setInputFiles(file);
  await ready(page);
  const { lens } = JSON.parse(command("model", decoder(), text, "--json", "--lens", "--with", file));
  const expected = lens.log_probabilities.map((layer) => percent(Math.exp(layer.at(-1)[0])));
  assert.deepEqual(await shares(), expected);
  assert.notDeepEqual(expected, plain);
  await page.getByRole("switch", { name: /by the Jacobian lens/ }).click();
  await ready(page);
  assert.deepEqual(await shares(), plain);
  // Another model's is refused in words.
  await page.getByLabel("A model's file").setInputFiles(path.join(models, "gpt2.jlens.safetensors"));
  await until(page, () => document.querySelector("[role=alert]"));
  assert.match(await page.locator("[role=alert]").textContent(), /Jacobian/);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("a decoder writes on, stops, and says why of what it wrote", async () => {
  const text = "Whose mat is it? it is";
  const page = await explored(live(decoder(), text));
  const { generated, ids, info } = JSON.parse(command("model", decoder(), text, "--json", "--generate", "64"));
  await page.getByRole("button", { name: "Write on" }).click();
  await ready(page);
  const words = await page.evaluate(() => window.attend.state.written.words.map(({ id }) => id));
  assert.ok(words.length > 8);
  assert.deepEqual(words, generated.ids.slice(0, words.length));
  const read = Math.min(words.length, info.longest - ids.length); // the token that fills the model's places is read by no pass
  assert.equal(await page.locator(".head .tokens .written").count(), read, "what it wrote is marked");
  await page.locator(".said button").nth(3).click();
  await page.waitForSelector(".why");
  const { token, position } = await page.evaluate(() => window.attend.state.why.answer);
  assert.deepEqual([token, position], [words[3], ids.length + 2]);
  await page.evaluate(() => { window.attend.ask({ text: "a mat" }); });
  await ready(page);
  await page.evaluate(() => { void window.attend.write(); window.attend.stop(); });
  await ready(page);
  assert.ok((await page.evaluate(() => window.attend.state.written.words.length)) <= 1, "it stops");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("an encoder-decoder: what its decoder writes, why, and cross-attention taken out", async () => {
  const text = "the cat sat on a mat", folder = path.join(models, "encoder_decoder");
  const page = await explored(live(decoder(), "a mat"));
  await page.getByLabel("A model's folder").setInputFiles(folder);
  await ready(page);
  await typed(page, text);
  const { next } = JSON.parse(command("model", folder, text, "--json"));
  const { generated } = JSON.parse(command("model", folder, text, "--json", "--generate", "12"));
  assert.deepEqual(await page.evaluate(() => window.attend.state.pass.next.map(({ id }) => id)), next.map(({ id }) => id));
  await page.getByRole("button", { name: "Write on" }).click();
  await ready(page);
  assert.deepEqual((await page.evaluate(() => window.attend.state.written.words.map(({ id }) => id))).slice(0, 12), generated.ids.slice(0, 12));
  await page.locator(".said button").nth(1).click();
  await page.waitForSelector(".why");
  const sums = page.locator(".parts [data-sum]");
  near(Number(await sums.getAttribute("data-sum")), Number(await sums.getAttribute("data-logit")), 1e-4, "the parts' sum, with those of cross-attention");
  assert.equal(await page.locator(".why-heads").count(), 2);
  await typed(page, `${text} and`);
  const before = await page.evaluate(() => window.attend.state.pass.next[0].probability);
  await page.locator("[data-head='decoder.1.cross.2']").click();
  await page.getByRole("button", { name: "Take it out" }).click();
  await ready(page);
  const { without } = JSON.parse(command("model", folder, `${text} and`, "--json", "--without", "1.2", "--attention", "cross"));
  const now = await page.evaluate(() => { const { pass, before: was } = window.attend.state; return [pass.next.find(({ id }) => id === was.next[0].id).probability, was.next[0].probability]; });
  near(now[1], before, 1e-6, "with all heads");
  near(Math.log(now[0]) - Math.log(now[1]), without.log_probability, 1e-4, "what it changes");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("the lesson's steps have the head's own numbers", async () => {
  const page = await explored(live(decoder(), "Whose mat is it? it is"));
  await page.getByRole("button", { name: "Step by step" }).click();
  await page.waitForSelector(".lesson-steps");
  const names = await page.locator(".lesson-steps nav button").allTextContents();
  assert.deepEqual(names, ["1 Scores", "2 Scale", "3 Mask", "4 Softmax", "5 Context"]);
  const read = async (name) => {
    const [rows, cols] = await page.locator(`.matrix[data-name=${name}] tbody`).first().evaluate((body) => [body.rows.length, body.rows[0].querySelectorAll("td").length]);
    const values = await page.locator(`.matrix[data-name=${name}]`).first().locator("td[data-col]").evaluateAll((cells) => cells.map((cell) => (cell.dataset.value === "-inf" ? -Infinity : Number(cell.dataset.value))));
    return { rows, cols, values };
  };
  const q = await read("queries"), k = await read("keys"), scores = await read("scores");
  const dot = (i, j) => Array.from({ length: q.cols }, (_, d) => q.values[i * q.cols + d] * k.values[j * k.cols + d]).reduce((sum, x) => sum + x, 0);
  scores.values.forEach((value, n) => near(value, dot(Math.floor(n / k.rows), n % k.rows), 1e-4, `scores[${n}]`));
  await page.getByRole("button", { name: "4 Softmax" }).click();
  const logits = await read("logits"), weights = await read("weights");
  for (let i = 0; i < logits.rows; ++i) {
    const row = logits.values.slice(i * logits.cols, (i + 1) * logits.cols);
    const sum = row.reduce((total, x) => total + Math.exp(x), 0);
    row.forEach((x, j) => near(weights.values[i * logits.cols + j], Math.exp(x) / sum, 1e-5, `weights[${i},${j}]`));
  }
  await page.getByRole("button", { name: "5 Context" }).click();
  const values = await read("values"), context = await read("context");
  context.values.forEach((value, n) => {
    const [i, d] = [Math.floor(n / context.cols), n % context.cols];
    near(value, Array.from({ length: values.rows }, (_, j) => weights.values[i * values.rows + j] * values.values[j * values.cols + d]).reduce((sum, x) => sum + x, 0), 1e-4, `context[${n}]`);
  });
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("embedded and in Italian: the steps speak it, and what computes stands alone", async () => {
  const page = await explored(live(decoder(), "Whose mat is it? it is"), { search: "?embed=1&lang=it" });
  assert.equal(await page.locator("header.top, footer").count(), 0);
  await page.getByRole("button", { name: "Step by step" }).click();
  await page.waitForSelector(".lesson-steps[lang=it]");
  assert.deepEqual(await page.locator(".lesson-steps nav button").allTextContents(), ["1 Punteggi", "2 Scala", "3 Maschera", "4 Softmax", "5 Contesto"]);
  assert.equal(new URL(await page.locator(".in-full a").evaluate((link) => link.href)).search, "?lang=it");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("whole words, and differences of two heads, are sums and differences of the maps", async () => {
  const text = "the unbelievable hippopotamus swallowed it";
  const page = await explored(live(minilm, text));
  await page.locator(".tabs select").first().selectOption("weight");
  await ready(page);
  const { weights } = native(quantized, text);
  await page.getByRole("switch", { name: "whole words" }).check();
  const tokens = await page.locator(".head .tokens button bdi").allTextContents();
  assert.deepEqual(tokens, ["[CLS]", "the", "unbelievable", "hippopotamus", "swallowed", "it", "[SEP]"]);
  const [heads, rows, cols] = weights[2].shape;
  assert.ok(heads > 5 && rows > tokens.length);
  const first = 3, last = rows - 3; // the tokens of the long word
  const merged = await mapOf(page, [2, 5], [0, tokens.length], [0, tokens.length]);
  let sum = 0;
  for (let i = first; i < last; ++i) for (let j = first; j < last; ++j) sum += weights[2].values[5 * rows * cols + i * cols + j];
  near(merged.data[3 * tokens.length + 3], sum / (last - first), 1e-5, "a word to itself");
  await page.getByRole("switch", { name: "whole words" }).uncheck();
  await page.locator("[data-head='2.5']").click();
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByLabel("Less which head").selectOption("4.7");
  const differences = weights[2].values.slice(5 * rows * cols, 6 * rows * cols).map((value, n) => Math.abs(value - weights[4].values[7 * rows * cols + n]));
  near(Number(await page.locator(".compare canvas").getAttribute("data-largest")), Math.max(...differences), 1e-6, "the largest difference");
  await page.getByLabel("Less which head").selectOption("layer 4.self");
  const mean = (layer, n) => Array.from({ length: heads }, (_, h) => weights[layer].values[h * rows * cols + n]).reduce((sum, x) => sum + x, 0) / heads;
  near(Number(await page.locator(".compare canvas").getAttribute("data-largest")), Math.max(...differences.map((_, n) => Math.abs(mean(2, n) - mean(4, n)))), 1e-6, "the largest difference of layers");
  // A sentence and its variant of as many tokens.
  await page.getByRole("button", { name: "Keep this text" }).click();
  await typed(page, "the unbelievable hippopotamus swallowed her");
  await page.getByLabel("Less which head").selectOption("");
  const variant = native(quantized, "the unbelievable hippopotamus swallowed her").weights[2].values;
  const changes = weights[2].values.slice(5 * rows * cols, 6 * rows * cols).map((value, n) => Math.abs(value - variant[5 * rows * cols + n]));
  near(Number(await page.locator(".compare canvas").getAttribute("data-largest")), Math.max(...changes), 1e-6, "the largest change");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("a recording of many words: the map zooms, each part exact", async () => {
  const words = Array.from({ length: 150 }, (_, n) => `${["the", "cat", "sat", "on", "a", "mat"][n % 6]}`).join(" ");
  const recording = scratch("long.attend");
  command("explain", words, "--heads", "2", "--causal", "-o", recording);
  const page = await explored(["show", recording]);
  command("show", recording, "--layer", "0", "-o", scratch("long.npy"));
  const { shape: [, rows, cols], values } = npy(readFileSync(scratch("long.npy")));
  assert.equal(rows, 150);
  const canvas = page.locator(".map canvas");
  await canvas.hover({ position: { x: 60, y: 200 } });
  for (let n = 0; n < 12; ++n) {
    await page.mouse.wheel(0, n < 8 ? -100 : 100);
    await drawn(page);
    const [[q0, q1], [k0, k1]] = [await canvas.getAttribute("data-queries"), await canvas.getAttribute("data-keys")].map((text) => text.split(",").map(Number));
    assert.match(await page.locator(".map .badge").textContent(), /exact/);
    const part = await mapOf(page, [0, 1], [q0, q1], [k0, k1]);
    part.data.forEach((value, n) => near(Number.isNaN(value) ? 0 : value, values[rows * cols + (q0 + Math.floor(n / (k1 - k0))) * cols + k0 + (n % (k1 - k0))], 1e-6, `${q0}:${q1},${k0}:${k1}[${n}]`));
  }
  await until(page, () => Number(document.querySelector(".map canvas").dataset.rows) < 100); // it has zoomed
  await canvas.press("0");
  await until(page, () => document.querySelector(".map canvas").dataset.queries === "0,150");
  // Blocks where a pixel is many pairs, and said so.
  const blocks = await mapOf(page, [0, 1], [0, rows], [0, cols], 50);
  assert.deepEqual([blocks.rows, blocks.cols, blocks.reduction], [50, 50, "sum over keys, mean over queries"]);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("a recording of many words without q and k has its blocks, and says so", async () => {
  const words = Array.from({ length: 290 }, (_, n) => ["a", "cat", "sat", "on", "the", "mat"][n % 6]).join(" ");
  const recording = scratch("summary.attend");
  command("model", minilm, words, "--keep", "summary", "-o", recording);
  const page = await explored(["show", recording]);
  await until(page, () => document.querySelector(".map .badge").textContent === "blocks");
  const { rows, cols, data } = await mapOf(page, [0, 2], [0, 292], [0, 292]);
  assert.ok(rows <= 256 && cols <= 256);
  for (let r = 0; r < rows; ++r) near(data.slice(r * cols, (r + 1) * cols).reduce((sum, x) => sum + x, 0), 1, 1e-4, `row ${r}`);
  await page.locator(".map canvas").hover();
  await page.mouse.wheel(0, -300);
  await drawn(page);
  await page.locator(".worked summary").click();
  assert.match(await page.locator(".head .worked").textContent(), /not kept/);
  assert.equal(await page.locator(".problem").count(), 0);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

// Rotary and relative positions, grouped keys, windows, a head of its own scale, two stacks.
test("recordings of other families", async () => {
  for (const family of readdirSync(path.join(models, "families"))) {
    const recording = scratch(`${family}.attend`);
    command("model", path.join(models, "families", family), "the cat sat on a mat and", "-o", recording);
    const page = await explored(["show", recording]);
    for (const view of ["Links", "Compare", "Step by step", "Map"]) await page.getByRole("button", { name: view, exact: true }).click({ force: true });
    const weights = JSON.parse(command("show", recording, "--json")).layers.map(({ name }) => {
      command("show", recording, "--layer", name, "-o", scratch("layer.npy"));
      return npy(readFileSync(scratch("layer.npy")));
    });
    await isNative(page, { weights });
    assert.deepEqual(await problemsOf(page), [], family);
    await page.context().close();
  }
});

const hostile = '<img src=x onerror=alert(1)> </script><script>alert(2)</script> <!-- "quotes\' &amp; \u202Eright to left\u202C שלום ' + "x".repeat(3000);
test("hostile tokens are text", async () => {
  const recording = scratch("hostile.attend");
  command("explain", hostile, "--heads", "2", "-o", recording);
  const page = await explored(["show", recording]);
  page.on("dialog", () => page.problems.push("a dialog"));
  const tokens = await page.locator(".head .tokens button bdi").allTextContents();
  const seen = (token) => token.replace(/[\u202c\u202e]/g, (letter) => `⟨${letter.charCodeAt(0).toString(16).toUpperCase()}⟩`);
  assert.deepEqual(tokens, JSON.parse(command("show", recording, "--json")).tokens.map(seen));
  for (const view of ["Links", "Compare", "Step by step", "Map"]) {
    await page.getByRole("button", { name: view, exact: true }).click();
    await drawn(page);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${view}: nothing is wider than the page`);
  }
  assert.equal(await page.locator("img").count(), 0);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
  const typing = await explored(live(decoder(), "a"));
  typing.on("dialog", () => typing.problems.push("a dialog"));
  await typed(typing, "<img src=x onerror=alert(1)> </script>");
  await typing.locator(".likeliest button").first().click();
  await typing.waitForSelector(".why");
  assert.deepEqual(await problemsOf(typing), []);
  await typing.context().close();
});

test("what is chosen for a query is a key that it sees", async () => {
  const recording = scratch("window.attend");
  command("explain", "a b c d e f", "--heads", "1", "--causal", "--window", "1", "-o", recording);
  const page = await explored(["show", recording]);
  await page.locator(".head .tokens button").nth(5).click();
  const { key, weight } = JSON.parse(command("show", recording, "--head", "0.0", "--query", "5", "--json")).top[0];
  assert.ok(key >= 4);
  assert.equal(await page.locator(".worked summary").textContent(), `How f → ${"abcdef"[key]} comes about: ${weight.toFixed(4)}`);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("one token, one head, and rows that see nothing", async () => {
  for (const args of [["one"], ["one", "--heads", "1", "--causal"], ["a b c d", "--window", "0"]]) {
    const recording = scratch("small.attend");
    command("explain", ...args, "-o", recording);
    const page = await explored(["show", recording]);
    for (const view of ["Links", "Step by step", "Map"]) await page.getByRole("button", { name: view, exact: true }).click();
    assert.deepEqual(await problemsOf(page), []);
    await page.context().close();
  }
});

test("a model from the reader's disk, in place of the one in the file", async () => {
  const page = await explored(live(decoder(), "a mat"));
  const file = page.getByLabel("A model's file"), folder = page.getByLabel("A model's folder");
  await page.locator(".open summary").click();
  await folder.setInputFiles(path.join(models, "encoder"));
  await ready(page);
  assert.match(await page.locator(".facts").textContent(), /An encoder/);
  // What is no model is refused in words, and the next one opens.
  const corpus = path.join(root, "tests/fuzz/corpus/gguf");
  for (const name of readdirSync(corpus).slice(0, 12)) {
    await file.setInputFiles({ name: "x.gguf", mimeType: "application/octet-stream", buffer: readFileSync(path.join(corpus, name)) });
    await ready(page);
    const problem = await page.locator(".problem").count();
    assert.ok(problem === 1 ? (await page.locator(".problem").textContent()).length > 10 : (await page.locator(".facts").count()) === 1, name);
  }
  await file.setInputFiles({ name: "notes.attend", mimeType: "application/octet-stream", buffer: Buffer.from("no recording") });
  await ready(page);
  assert.match(await page.locator(".problem").textContent(), /notes\.attend/);
  const large = await page.evaluate(() => window.attend.openModel("large", [{ name: "/large.gguf", bytes: 5e9, from: new Blob([]) }], "/large.gguf").then(() => window.attend.state.error));
  assert.match(large, /5\.0 GB.*3\.6 GB/);
  await file.setInputFiles(decoder());
  await ready(page);
  assert.equal(await page.locator(".problem").count(), 0);
  assert.match(await page.locator(".facts").textContent(), /A decoder.*Q8_0/);
  await file.setInputFiles(path.join(models, "decoder.attend"));
  await ready(page);
  assert.match(await page.locator(".facts").textContent(), /A recording/);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("what can't be opened leaves what is open as it is", async () => {
  const text = "Whose mat is it? it is";
  const page = await explored(live(decoder(), text));
  await page.locator("[data-head='0.1']").click();
  const parts = [".top", ".facts", ".likeliest", ".head h2", ".head .tokens"];
  const shown = () => Promise.all(parts.map((part) => page.locator(part).first().textContent()));
  const before = await shown();
  const file = page.getByLabel("A model's file"), folder = page.getByLabel("A model's folder");
  const cut = readFileSync(decoder()).subarray(0, -1000);
  for (const [name, buffer, problem] of [["x.gguf", Buffer.from("no model"), /x\.gguf/], ["cut.gguf", cut, /cut\.gguf/], ["notes.attend", Buffer.from("no recording"), /notes\.attend/]]) {
    await file.setInputFiles({ name, mimeType: "application/octet-stream", buffer });
    await page.locator(".problem", { hasText: problem }).waitFor();
    assert.deepEqual(await shown(), before, name);
    await isNative(page, native(decoder(), text));
  }
  mkdirSync(scratch("folder"));
  writeFileSync(path.join(scratch("folder"), "config.json"), "{}");
  await folder.setInputFiles(scratch("folder"));
  await page.locator(".problem", { hasText: "model.safetensors" }).waitFor();
  assert.deepEqual(await shown(), before);
  // It goes on computing, and another model opens.
  const other = "a mat it is";
  await page.getByLabel("The text", { exact: true }).fill(other);
  const wanted = native(decoder(), other);
  await page.locator(`.likeliest output:text-is("${percent(wanted.next[0].probability)}")`).first().waitFor();
  await isNative(page, wanted);
  assert.equal(await page.locator(".problem").count(), 0);
  await folder.setInputFiles(path.join(models, "encoder"));
  await page.locator(".facts", { hasText: "An encoder" }).waitFor();
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("a live page answers the question that it was made with: this word rather than that", async () => {
  const text = "Whose mat is it? it is";
  const [token, against] = native(decoder(), text).next.map(({ token }) => token).filter((token) => /^[ -~]$/.test(token));
  const asked = ["--why", token, "--against", against];
  const page = await explored(live(decoder(), text, ...asked));
  await page.waitForSelector(".why");
  const { why } = JSON.parse(command("model", decoder(), text, "--json", ...asked));
  const alone = JSON.parse(command("model", decoder(), text, "--json", "--why", token)).why;
  assert.ok(Math.abs(why.logit - alone.logit) > 0.01, "the difference is another number");
  near(Number(await page.locator(".parts [data-logit]").textContent()), why.logit, 0.51e-4, "the difference on screen");
  assert.equal(await page.getByLabel("rather than this word").inputValue(), against);
  // What is asked next is asked so too, until another word or none stands there.
  await page.getByLabel("rather than this word").fill("");
  await page.getByLabel("rather than this word").press("Enter");
  await page.locator(`.parts [data-logit]:text-is("${alone.logit.toFixed(4)}")`).waitFor();
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("keys walk, a link restores, Back undoes", async () => {
  const page = await explored(live(minilm, sentence), { hash: "#head=2.4&query=3&key=5" });
  await ready(page);
  const selected = () => page.evaluate(() => { const { head, query, key } = window.attend.state.locked; return [...head, query, key]; });
  assert.deepEqual(await selected(), [2, 4, 3, 5]);
  await page.locator("[data-head='2.4']").focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  assert.deepEqual(await selected(), [3, 5, 3, 5]);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.head), "3.5");
  await page.locator(".map canvas").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  assert.deepEqual(await selected(), [3, 5, 4, 4]);
  await page.locator(".head .tokens [aria-pressed=true]").focus();
  await page.keyboard.press("ArrowRight");
  assert.deepEqual((await selected()).slice(0, 3), [3, 5, 5]);
  const before = await selected();
  await page.locator("[data-head='0.0']").click();
  await until(page, () => location.hash.includes("head=0.0"));
  await page.goBack();
  await until(page, (before) => { const { head, query } = window.attend.state.locked; return [...head, query].join() === before; }, before.slice(0, 3).join());
  // One Tab stop for each group of words, heads or pairs.
  assert.equal(await page.locator(".overview [role=gridcell][tabindex='0']").count(), 1);
  assert.equal(await page.locator(".head .tokens button[tabindex='0']").count(), 1);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("in a notebook's frame", async () => {
  const page = await framed(...live(decoder(), "a mat"));
  const frame = page.frameLocator("iframe");
  await frame.locator(".looking").waitFor();
  await frame.locator(".likeliest button").first().click();
  await frame.locator(".why").waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

for (const [width, colorScheme] of [[390, "light"], [390, "dark"], [1024, "light"], [1280, "dark"], [1600, "light"]])
  test(`for everyone, ${width} px, ${colorScheme}`, async () => {
    const page = await explored(live(decoder(), "Whose mat is it? it is"), { viewport: { width, height: 850 }, colorScheme });
    await page.locator(".likeliest button").first().click();
    await page.waitForSelector(".why");
    const clean = async (what) => {
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 120)).join(" | ")}`), [], what);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what}: nothing is wider than the page`);
    };
    await clean("why");
    await page.getByRole("button", { name: "Trace it back" }).click();
    await ready(page);
    await page.getByLabel("The other text").fill("Whose cat is it? it is");
    await page.getByRole("button", { name: "Find it" }).click();
    await page.waitForSelector(".graph");
    await ready(page);
    await page.locator(".graph [data-node^='mlp']").first().click();
    await page.waitForSelector("output[data-without]");
    await page.locator(".reasons summary").click();
    await page.waitForSelector(".reasons .lines");
    await clean("back to the words");
    for (const view of ["Links", "Compare", "Step by step"]) {
      await page.getByRole("button", { name: view, exact: true }).click();
      await drawn(page);
      await clean(view);
    }
    const small = await page.locator("button:visible, select:visible, summary:visible").evaluateAll((all) => all.filter((each) => !each.closest(".overview, .parts, .lines, .top-keys, .tokens, .said, .words, .lesson-steps, .matrix") && each.getBoundingClientRect().height < 31.5).map((each) => each.outerHTML.slice(0, 90)));
    assert.deepEqual(small, [], "what is touched has 32 px");
    assert.deepEqual(await problemsOf(page), []);
    await page.context().close();
  });
