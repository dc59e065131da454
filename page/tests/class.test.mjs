// The guided experiments that `attend class` makes, in Chromium, as a student has them: in three languages, by keyboard, from a disk.
// Their numbers: tests/pytorch/test_experiments.py. Needs MINILM, a folder, and SMOLLM2, a .gguf file.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { after, before, test } from "node:test";
import { close_browser, command, open_browser, page_at, problemsOf, scratch, until } from "./browser.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const experiments = ["paris", "induction", "sink", "tired", "mask", "two-heads", "translation", "root"];
const languages = ["en", "it", "zh"];
const folder = scratch("class");

before(async () => {
  await open_browser();
  command("class", "-o", folder, "--minilm", process.env.MINILM, "--smollm2", process.env.SMOLLM2);
});
after(close_browser);

const open = (name, { language = "en", ...options } = {}) =>
  page_at(path.join(folder, `${name}.html`), ".class", { within: folder, search: language === "en" ? "" : `?lang=${language}`, ...options });
const numbersOf = (name) => JSON.parse(/id="request">(.*?)<\/script>/.exec(readFileSync(path.join(folder, `${name}.html`), "utf8"))[1]).numbers;

// Which answer is right, found here once more: the place among those that the page offers.
const right = {
  paris: ({ answer: [before, after] }) => { assert.ok(after < before / 4); return 3; },
  induction: ({ names: [{ probabilities }] }) => { assert.ok(probabilities[1] > 0.75); return 3; },
  sink: ({ share }) => { assert.ok(Math.abs(share - 0.6) < 0.1); return 2; },
  tired: ({ sentences: [, { tokens, weights }] }) => { assert.equal(tokens[weights.indexOf(Math.max(...weights))], "[CLS]"); return 2; },
  mask: ({ weights, causal }) => { assert.ok(Math.abs(causal[0] / weights[0] - causal[2] / weights[2]) < 1e-3 && causal[0] / weights[0] > 1.1); return 1; },
  "two-heads": ({ heads: [one] }) => { assert.ok(one.weights[one.key] > 0.999); return 0; },
  translation: ({ tokens }) => tokens.indexOf("selected"),
  root: ({ sizes }) => { assert.ok(sizes[2].without > 1.3 * sizes[0].without && sizes[2].without < 0.99); return 2; },
};

const percent = (share) => Math.round(share * 100);
// Numbers that a reader of the answer must find: of each experiment, from what was computed.
const seen = {
  paris: (n) => [...n.capitals.map(({ after }) => percent(after)), percent(n.weights[3]), n.answer[1].toFixed(3)],
  induction: (n) => [n.tokens.length / 2 - 1, (n.names[0].probabilities[1] * 100).toFixed(1)],
  sink: (n) => [percent(n.share), n.heads_of_half, n.heads, n.lengths[2].toFixed(2), ...n.weights.map((weight) => weight.toFixed(2))],
  tired: (n) => [n.cosine.toFixed(4), percent(n.sentences[2].weights[2])],
  mask: (n) => [n.causal[1].toFixed(3), n.weights[1].toFixed(3)],
  "two-heads": (n) => [n.heads[1].weights[n.heads[1].key].toFixed(3), n.head_size],
  translation: (n) => n.weights.map((weight) => weight.toFixed(2)),
  root: (n) => n.sizes.flatMap((each) => [each.without.toFixed(2), each.with.toFixed(2), each.spread.toFixed(2)]),
};

const looks = [
  { viewport: { width: 390, height: 664 }, colorScheme: "light" }, { viewport: { width: 1024, height: 800 }, colorScheme: "dark" },
  { viewport: { width: 1600, height: 900 }, colorScheme: "light" }, { viewport: { width: 768, height: 900 }, colorScheme: "dark" },
];

const proper = async (page, what) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), [], what);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), 0, `${what} scrolls sideways`);
  assert.deepEqual(await problemsOf(page), [], what);
};

const english = {};
for (const [n, language] of languages.entries())
  test(`${language}: every experiment is predicted by keyboard, and answered as it was computed`, async () => {
    for (const [place, name] of experiments.entries()) {
      const page = await open(name, { language, ...looks[(place + n) % looks.length] });
      assert.equal(await page.getAttribute("html", "lang"), language);
      assert.equal(await page.locator(".answer").count(), 0, "nothing is told before it is asked for");
      await page.locator(".options button").first().focus();
      await page.keyboard.press("Tab");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".answer");
      const numbers = numbersOf(name);
      assert.equal(await page.locator(".options button").evaluateAll((buttons) => buttons.findIndex(({ className }) => className === "right")), right[name](numbers), name);
      const answer = (await page.locator(".answer").innerText()).replaceAll("\u00a0", " ");
      for (const number of seen[name](numbers)) assert.ok(answer.includes(String(number)), `${name}, ${language}: ${number} is not in ${answer}`);
      await proper(page, `${name}, ${language}`);
      // Complete: no sentence stays English.
      const sentences = await page.locator("h2, h3, main > p:not(.written), .answer p, figcaption, .options ~ p").allInnerTexts();
      if (language === "en") english[name] = sentences;
      else for (const [m, sentence] of sentences.entries()) if (/\p{L}{4,}/u.test(sentence)) assert.notEqual(sentence, english[name][m], `${name}, ${language}`);
      await page.context().close();
    }
  });

test("the list leads to all of it, and stays in its language", async () => {
  for (const language of languages) {
    const page = await open("index", { language, ...looks[0] });
    const links = await page.locator("main a").evaluateAll((all) => all.map((each) => each.getAttribute("href")));
    assert.equal(links.length, experiments.length + 2);
    for (const link of links) {
      assert.ok(existsSync(path.join(folder, link.replace(/\?.*/, ""))), link);
      assert.equal(link.includes("?lang="), language !== "en", link);
    }
    await proper(page, `index, ${language}`);
    await page.context().close();
  }
});

test("what it opens is in the state that it spoke of", async () => {
  for (const [name, isThere] of [
    ["paris", () => /Head 23\.4/.test(document.body.innerText) && /is\s+gives most to[^]*France/i.test(document.body.innerText)],
    ["translation", () => /decoder\.0\.cross\.3/.test(document.body.innerText) && /selected/.test(document.body.innerText)],
    ["tired", () => /Head 3\.1/.test(document.body.innerText) && document.body.innerText.includes("wide")],
    ["mask", () => document.querySelector(".rail [aria-current]") !== null && location.hash.includes("causal=true")],
  ]) {
    const page = await open(name, { hash: "#answer" });
    await page.locator(".ways button").click();
    await page.waitForSelector("iframe");
    const frame = await (await page.$("iframe")).contentFrame();
    await until(frame, isThere);
    assert.deepEqual(await problemsOf(page), [], name);
    await page.context().close();
  }
});

test("without JavaScript it says what it is, and leads on", async () => {
  const page = await open("paris", { javaScriptEnabled: false });
  assert.match(await page.locator("main").innerText(), /A class on attention[^]*needs JavaScript/);
  assert.equal(await page.locator("main a").count(), experiments.length + 2);
  await page.context().close();
});
