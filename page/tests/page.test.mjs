// The page in a browser: its numbers are the library's, every step and switch works, for everyone, and nothing leaves it.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import test, { after, before } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { close_browser, command, drawn, framed, goTo, matrices, open_browser, opened, problemsOf, scratch, stepNames, traceOf, until } from "./browser.mjs";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const presets = command("explain", "--list").trim().split("\n").map((line) => line.split(" ")[0]);

before(open_browser);
after(close_browser);

// What JSON has no number for.
const numberOf = (json) => (json === null ? -Infinity : Math.fround(json));
const ofHead = (tensor, head) => (Array.isArray(tensor[0][0]) ? tensor[head] : tensor);
const valueOf = (text) => (text === "-inf" ? -Infinity : Math.fround(Number(text)));

const matches = ({ name, rows }, expected) => {
  assert.equal(rows.length, expected.length, `${name}: rows`);
  rows.forEach((row, i) => {
    assert.equal(row.length, expected[i].length, `${name}: columns`);
    row.forEach(({ value, text }, j) => {
      const number = numberOf(expected[i][j]);
      assert.equal(valueOf(value), number, `${name}[${i},${j}]`);
      if (text !== "hidden" && number !== -Infinity) assert.ok(Math.abs(Number(text) - number) <= 0.500001e-4 * Math.max(1, Math.abs(number)), `${name}[${i},${j}] reads ${text}, is ${number}`);
    });
  });
};

// Every matrix of every step and head is the trace's; returns the names that were on show.
const isTrace = async (page, trace) => {
  const seen = new Set();
  for (const name of await stepNames(page)) {
    await goTo(page, name);
    const tabs = await page.locator(".heads button").count();
    for (let head = 0; head < Math.max(tabs, 1); ++head) {
      if (tabs > 0) await page.locator(".heads button").nth(head).click();
      for (const matrix of await matrices(page)) {
        matches(matrix, ofHead(trace.tensors[matrix.name], head));
        seen.add(matrix.name);
      }
    }
  }
  return seen;
};
// The projections' matrices show one at a time: the one of what was touched.
const touchProjections = async (page, seen, trace) => {
  await goTo(page, "q, k, v");
  for (const name of ["keys", "values"]) {
    await page.locator(`.matrix[data-name=${name}] td[data-col]`).first().click();
    for (const matrix of await matrices(page)) {
      const head = await page.locator(".heads button[aria-pressed=true]").count() ? Number((await page.locator(".heads button[aria-pressed=true]").textContent()).match(/\d+/)[0]) : 0;
      matches(matrix, ofHead(trace.tensors[matrix.name], head));
      seen.add(matrix.name);
    }
  }
};

for (const preset of presets)
  test(`${preset}: every number on the page is the library's`, async () => {
    const page = await opened(["--preset", preset]);
    const trace = traceOf("--preset", preset);
    const seen = await isTrace(page, trace);
    await touchProjections(page, seen, trace);
    assert.deepEqual([...seen].sort(), Object.keys(trace.tensors).sort());
    assert.deepEqual(await problemsOf(page), []);
    await page.context().close();
  });

// What the documents print of each preset, from the row on (tests/explain/documents_test.cpp has it too; of the others they
// print shapes alone).
const printed = JSON.parse(readFileSync(new URL("printed.json", import.meta.url)));
const stepOf = { embeddings: "Embeddings", w_query: "q, k, v", w_key: "q, k, v", w_value: "q, k, v", queries: "q, k, v", keys: "q, k, v", values: "q, k, v", scores: "Scores", weights: "Softmax", context: "Context" };
test("what the documents print stands on the page, digit for digit", async () => {
  let count = 0;
  for (const [preset, tensors] of Object.entries(printed)) {
    const page = await opened(["--preset", preset]);
    for (const { tensor, row, numbers } of tensors) {
      await goTo(page, stepOf[tensor]);
      const result = { w_query: "queries", w_key: "keys", w_value: "values" }[tensor];
      if (result) await page.locator(`.matrix[data-name=${result}] td[data-col]`).first().click();
      const { rows } = (await matrices(page)).find(({ name }) => name === tensor);
      assert.deepEqual(rows.slice(row, row + numbers.length).map((cells) => cells.map(({ text }) => text)), numbers, `${preset} ${tensor}`);
      count += numbers.flat().length;
    }
    await page.context().close();
  }
  assert.equal(count, 410);
});

const sentences = [
  { args: ["the cat sat on the mat", "--heads", "3", "--causal"] },
  { args: ["to be or not to be", "--positions", "--window", "2"] },
  { args: ["one", "--weights", "uniform"] },
  { args: ["a b c d e f g h", "--no-scale", "--seed", "18446744073709551615", "--d-k", "7", "--d-v", "3", "--embedding-size", "5"] },
  { args: ["the cat sat", "--cross", "le chat dormait ici", "--heads", "2", "--positions"] },
  { args: ["window and causal and more words", "--causal", "--window", "1"] },
];
for (const { args } of sentences)
  test(`${args.join(" ")}: the page's numbers are the library's`, async () => {
    const page = await opened(args);
    await isTrace(page, traceOf(...args));
    assert.deepEqual(await problemsOf(page), []);
    await page.context().close();
  });

test("switches: each change is what the command gives for it", async () => {
  const page = await opened(["the cat sat on the mat"]);
  const asked = ["the cat sat on the mat"];
  const weightsAre = async (args) => {
    await goTo(page, "Picture");
    matches((await matrices(page))[0], ofHead(traceOf(...args).tensors.weights, 0));
  };
  await page.getByRole("switch", { name: "causal" }).check();
  await weightsAre([...asked, "--causal"]);
  await page.getByLabel("window", { exact: true }).fill("2");
  await weightsAre([...asked, "--causal", "--window", "2"]);
  await page.getByRole("switch", { name: "positions" }).check();
  await weightsAre([...asked, "--causal", "--window", "2", "--positions"]);
  await page.getByRole("switch", { name: "scale" }).uncheck();
  await weightsAre([...asked, "--causal", "--window", "2", "--positions", "--no-scale"]);
  await page.getByLabel("heads", { exact: true }).fill("4");
  await weightsAre([...asked, "--causal", "--window", "2", "--positions", "--no-scale", "--heads", "4"]);
  await page.getByText("more", { exact: true }).click();
  await page.locator(".more select").selectOption("uniform");
  await page.getByLabel("d_k").fill("8");
  await page.getByLabel("embedding size").fill("10");
  await page.getByLabel("seed").fill("7");
  const all = ["--positions", "--no-scale", "--heads", "4", "--weights", "uniform", "--d-k", "8", "--embedding-size", "10", "--seed", "7"];
  await weightsAre([...asked, "--causal", "--window", "2", ...all]);
  await page.getByRole("switch", { name: "second sentence" }).check();
  await page.getByLabel("keys and values from").fill("le chat dort");
  await weightsAre([...asked, "--cross", "le chat dort", ...all]);
  assert.ok(await page.getByRole("switch", { name: "causal" }).isDisabled());
  await page.getByLabel("The sentence", { exact: true }).fill("a dog ran");
  await weightsAre(["a dog ran", "--cross", "le chat dort", ...all]);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("a sentence without words is answered with the library's words, and nothing is lost", async () => {
  const page = await opened(["the cat sat"]);
  await page.getByLabel("The sentence", { exact: true }).fill(" ");
  assert.match(await page.locator(".problem").textContent(), /no words/);
  assert.equal(await page.locator(".matrix tbody tr").count(), 3);
  await page.getByLabel("The sentence", { exact: true }).fill("a b");
  assert.equal(await page.locator(".problem").textContent(), "");
  assert.equal(await page.locator(".matrix tbody tr").count(), 2);
  await page.context().close();
});

test("a score lights up its query and key, and their products add up to it", async () => {
  const page = await opened(["the cat sat on the mat"]);
  await goTo(page, "Scores");
  await page.locator(".matrix[data-name=scores] tbody tr").nth(2).locator("td[data-col='4']").hover();
  assert.equal(await page.locator(".matrix[data-name=queries] tr.on th").textContent(), "sat");
  assert.equal(await page.locator(".matrix[data-name=keys] tr.on th").textContent(), "the₅");
  const products = await page.locator(".products tbody tr").evaluateAll((rows) => rows.map((row) => row.cells[3].textContent));
  const score = traceOf("the cat sat on the mat").tensors.scores[2][4];
  assert.equal(products.length, 24);
  assert.ok(Math.abs(products.reduce((sum, text) => sum + Number(text), 0) - score) < 24 * 0.5e-4);
  assert.ok(Math.abs(Number(await page.locator(".products output").textContent()) - score) < 0.51e-4);
  await page.mouse.move(5, 5);
  assert.notEqual(await page.locator(".matrix[data-name=queries] tr.on th").textContent(), "sat"); // hover is a preview
  await page.locator(".matrix[data-name=scores] tbody tr").nth(2).locator("td[data-col='4']").click();
  await page.mouse.move(5, 5);
  assert.equal(await page.locator(".matrix[data-name=queries] tr.on th").textContent(), "sat"); // a click stays
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".matrix[data-name=queries] tr.on th").textContent(), "cat");
  await page.context().close();
});

test("what is worked out in each step is the number that was touched", async () => {
  const args = ["the cat sat on", "--heads", "2", "--causal", "--positions"];
  const page = await opened(args);
  const { tensors } = traceOf(...args);
  const cases = [["Embeddings", "embeddings"], ["Places", "inputs"], ["q, k, v", "queries"], ["q, k, v", "keys"], ["q, k, v", "values"], ["Scores", "scores"], ["Scale", "scaled_scores"], ["Context", "context"], ["Heads", "concat_heads"], ["Output", "output"]];
  for (const [step, name] of cases) {
    await goTo(page, step);
    await page.locator(`.matrix[data-name=${name}] tbody tr`).nth(2).locator("td[data-col='1']").click();
    const text = await page.locator(".worked").textContent();
    assert.ok(text.includes(ofHead(tensors[name], 0)[2][1].toFixed(4)), `${name}: ${text}`);
  }
  await page.context().close();
});

test("the keyboard alone: steps by Space and arrows, cells by arrows, Enter and Esc", async () => {
  const page = await opened(["the cat sat"]);
  const reaches = (step) => page.locator(".rail [aria-current]", { hasText: step }).waitFor(); // it is shown in the next frame
  await page.keyboard.press(" ");
  await reaches("2 Words");
  await page.keyboard.press("ArrowRight");
  await reaches("3 Embeddings");
  await page.keyboard.press("Shift+ ");
  await page.keyboard.press("ArrowLeft");
  await reaches("1 Picture");
  const reached = [];
  for (let presses = 0; presses < 40; ++presses) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.tagName + (document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent).slice(0, 20)));
    if (await page.evaluate(() => document.activeElement.matches("td"))) break;
  }
  assert.ok(reached.at(-1).startsWith("TD"), reached.join("\n")); // one cell of the grid is in the tab order
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("End");
  assert.equal(await page.locator("td.cell").evaluate((cell) => [cell.parentElement.rowIndex, cell.dataset.col].join()), "3,2");
  assert.ok(await page.locator("td.cell").evaluate((cell) => cell === document.activeElement));
  await reaches("1 Picture"); // the arrows moved in the grid alone
  await page.keyboard.press("Home");
  assert.match(await page.locator(".worked h3").textContent(), /sat/);
  await page.keyboard.press("Escape");
  assert.match(await page.locator(".worked h3").textContent(), /cat/);
  await page.context().close();
});

test("touch: a tap keeps a number", async () => {
  const page = await opened(["the cat sat"], { hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } });
  await goTo(page, "Softmax");
  await page.locator(".matrix[data-name=weights] tbody tr").nth(2).locator("td[data-col='0']").tap();
  assert.match(await page.locator(".worked h3").textContent(), /weights\(sat, the\)/);
  await page.context().close();
});

const everyStep = ["the quick brown fox jumped", "--heads", "2", "--positions", "--causal"];
for (const width of [390, 820, 1024, 1280, 1600, 2560])
  test(`${width} pixels: nothing is wider than the screen, in any step`, async () => {
    const page = await opened(everyStep, { viewport: { width, height: 900 } });
    for (const name of await stepNames(page)) {
      await goTo(page, name);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, name);
    }
    await page.context().close();
  });

for (const [colorScheme, width, asks = {}] of [["dark", 1280], ["light", 390], ["light", 1280, { search: "?lang=zh", hash: "#model=MiniLM" }]])
  test(`axe finds nothing in any step, ${colorScheme}, ${width} pixels${Object.values(asks).join("")}`, async () => {
    const page = await opened(everyStep, { colorScheme, viewport: { width, height: 900 }, ...asks });
    await page.evaluate(axe);
    for (const name of await stepNames(page)) {
      await goTo(page, name);
      const folded = page.locator(".fold[aria-expanded=false]"); // the sheet of a narrow screen
      if (await folded.isVisible()) await folded.click();
      await page.locator("details").evaluateAll((all) => all.forEach((each) => { each.open = true; }));
      const closed = page.locator(".term[aria-expanded=false]");
      while (await closed.count()) await closed.first().click();
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map(({ id, nodes }) => `${name}: ${id} ${nodes.slice(0, 3).map(({ html }) => html)}`), []);
    }
    await page.context().close();
  });

test("reduced motion: nothing moves by itself", async () => {
  const page = await opened(["a b"], { reducedMotion: "reduce" });
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((element) => getComputedStyle(element).transitionDuration !== "0s").length);
  assert.equal(moving, 0);
  await page.context().close();
});

test("the policy allows the page's own script and styles, and no more", async () => {
  const page = await opened(["a b"]);
  const policy = await page.locator("meta[http-equiv]").getAttribute("content");
  assert.match(policy, /^default-src 'none'; script-src 'sha256-[^' ]+' 'wasm-unsafe-eval'; style-src 'sha256-[^' ]+'; img-src data: blob:; base-uri 'none'; form-action 'none'$/);
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
  });
  assert.equal(await page.evaluate(() => window.ran), undefined);
  await page.context().close();
});

const hostile = [
  "</script><img/onerror=alert(1)/src=x>", "<!--", "]]>", "&lt;b&gt;", "${alert(1)}", "\"'`", "שלום", "مرحبا", "👩‍👩‍👧‍👦", "é́́́", "a\u202Eb", "\u0007bell", "x".repeat(10_000),
];
test("any words are shown as text", async () => {
  const page = await opened([hostile.join(" ")]);
  for (const name of await stepNames(page)) {
    await goTo(page, name);
    assert.equal(await page.locator("img").count(), 0);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 1280, name);
  }
  await goTo(page, "Words");
  const words = await page.locator(".ids bdi").allTextContents();
  assert.deepEqual(words.slice(0, 5), hostile.slice(0, 5));
  assert.equal(words.at(-1), hostile.at(-1));
  assert.equal(words.length, hostile.length);
  assert.deepEqual(await problemsOf(page), []);
  for (const text of hostile) {
    await page.getByLabel("The sentence", { exact: true }).fill(`${text} b`);
    assert.deepEqual(await problemsOf(page), []);
  }
  await page.context().close();
});

test("without JavaScript the file shows text and picture", async () => {
  const page = await opened(["the cat sat"], { javaScriptEnabled: false });
  const text = await page.locator("#static").textContent();
  assert.match(text, /Queries meet keys/);
  assert.ok(await page.locator("#static svg rect").count() >= 9);
  assert.ok(await page.locator("#static h2").first().isVisible());
  await page.context().close();
});

test("in a notebook's frame the page computes, and copies without a clipboard", async () => {
  const page = await framed("explain", "the cat sat");
  const frame = page.frameLocator("iframe");
  await frame.locator(".rail").waitFor();
  await frame.getByLabel("heads", { exact: true }).fill("2");
  await frame.locator(".rail li button", { hasText: "Output" }).click();
  assert.equal(await frame.locator(".matrix[data-name=output] tbody tr").count(), 3);
  await frame.getByLabel("Copy output as").selectOption("CSV");
  await frame.locator(".copy [role=status]", { hasText: /copied|closed/ }).first().waitFor();
  assert.deepEqual(page.problems, []);
  await page.context().close();
});

test("more than 200 words: what to use instead", async () => {
  const long = Array.from({ length: 201 }, (_, place) => `w${place}`).join(" ");
  const page = await opened(["the cat sat"]);
  await page.getByLabel("The sentence", { exact: true }).fill(long);
  assert.match(await page.locator(".problem").textContent(), /201 words.*attend show/);
  await page.getByLabel("The sentence", { exact: true }).fill(long.replace("w0 ", ""));
  assert.equal(await page.locator(".problem").textContent(), "");
  assert.equal(await page.locator(".painted canvas").count(), 1);
  await page.locator(".painted canvas").focus();
  await page.keyboard.press("ArrowDown");
  assert.match(await page.locator(".worked h3").textContent(), /w3/);
  await page.locator(".painted canvas").hover({ position: { x: 300, y: 1 } }); // three pixels a cell
  await until(page, () => document.querySelector(".worked h3").textContent === "Where w1 looks");
  await page.context().close();
});

test("a link brings back what was seen", async () => {
  const page = await opened(["the cat sat on the mat"]);
  await page.getByLabel("heads", { exact: true }).fill("2");
  await goTo(page, "Scores");
  await page.locator(".heads button").nth(1).click();
  await page.locator(".matrix[data-name=scores] tbody tr").nth(3).locator("td[data-col='2']").click();
  const hash = new URL(page.url()).hash;
  assert.equal(hash, "#text=the+cat+sat+on+the+mat&heads=2&step=scores&head=1&query=4&key=3"); // what is not the default
  const other = await opened(["another sentence"], { hash });
  assert.equal(await other.getByLabel("The sentence", { exact: true }).inputValue(), "the cat sat on the mat");
  assert.equal(await other.locator(".rail [aria-current]").textContent(), "5 Scores");
  assert.match(await other.locator(".worked h3").textContent(), /scores\(on, sat\)/);
  assert.match(await other.locator(".heads [aria-pressed=true]").textContent(), /head 1$/);
  await page.context().close();
  await other.context().close();
});

test("heads count from 0, in a link too", async () => {
  const page = await opened(["the cat sat", "--heads", "3", "--head", "1"]);
  const weights = traceOf("the cat sat", "--heads", "3").tensors.weights;
  const shows = async (shown, head) => {
    await until(shown, (name) => document.querySelector(".heads [aria-pressed=true]").textContent.trim() === name, `head ${head}`);
    matches((await matrices(shown))[0], weights[head]);
    assert.match(await shown.locator(".shown p").first().textContent(), new RegExp(`, in head ${head}$`));
  };
  assert.deepEqual((await page.locator(".heads button").allTextContents()).map((text) => text.trim()), ["head 0", "head 1", "head 2"]);
  await shows(page, 1);
  await page.locator(".heads button", { hasText: "head 2" }).click();
  await shows(page, 2);
  assert.equal(new URLSearchParams(new URL(page.url()).hash.slice(1)).get("head"), "2");
  for (const head of [0, 1, 2]) {
    const other = await opened(["the cat sat", "--heads", "3", "--head", "1"], { hash: `#head=${head}` });
    await shows(other, head);
    await other.context().close();
  }
  await goTo(page, "Heads");
  assert.match(await page.locator(".formula").textContent(), /context of head 0, context of head 1/);
  await page.locator(".matrix[data-name=concat_heads] tbody tr").first().locator("td[data-col='28']").click(); // the first number of the second head
  assert.match(await page.locator(".worked p").first().textContent(), /number 1 of the context vector of head 1,/);
  await page.getByRole("button", { name: "Go to head 1" }).click();
  assert.equal((await page.locator(".heads [aria-pressed=true]").textContent()).trim(), "head 1");
  await page.context().close();
});

test("a link that asks for more than there is shows what there is", async () => {
  const beyond = "#text=a+b&heads=2&head=9&query=99&key=99&step=nothing";
  const page = await opened(["the cat sat"], { hash: beyond });
  assert.match(await page.locator(".worked h3").textContent(), /Where b looks/);
  await page.evaluate((hash) => { location.hash = hash; }, beyond.replace("a+b", "c+d"));
  await until(page, () => document.querySelector(".worked h3").textContent === "Where d looks");
  assert.match(await page.locator(".heads [aria-pressed=true]").textContent(), /head 1$/);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

test("the colours of weights are on the scale that is chosen, and the legend says where shares stand", async () => {
  const page = await opened(["a b"]);
  await page.getByLabel("Range of the weights' colours").selectOption("whole");
  const background = () => page.locator(".matrix[data-name=weights] td[data-col]").first().evaluate((cell) => cell.style.background);
  const seen = new Set();
  for (const [scale, place] of [["sqrt", "50%"], ["linear", "25%"], ["log", null]]) {
    await page.getByLabel("Scale of the weights' colours").selectOption(scale);
    seen.add(await background());
    const ticks = await page.locator(".legend i").evaluateAll((marks) => Object.fromEntries(marks.map((mark) => [mark.textContent, mark.style.left])));
    if (place) assert.equal(ticks["0.25"], place);
    else assert.deepEqual(ticks, { "0.0001": "0%", "0.001": "25%", "0.01": "50%", "0.1": "75%", 1: "100%" });
  }
  assert.equal(seen.size, 3);
  await page.context().close();
});

test("compare: what was kept stands beside what is", async () => {
  const page = await opened(["the cat sat on the mat"]);
  await page.getByRole("button", { name: "Compare" }).click();
  await page.getByRole("switch", { name: "scale" }).uncheck();
  const [now, kept] = await matrices(page);
  matches(now, traceOf("the cat sat on the mat", "--no-scale").tensors.weights);
  matches(kept, traceOf("the cat sat on the mat").tensors.weights);
  assert.match(await page.locator(".before").textContent(), /scale on/);
  await page.context().close();
});

test("predict, then reveal", async () => {
  const page = await opened(["the cat sat on the mat", "--causal", "--heads", "2"]);
  for (const [step, answer] of [["Picture", "each has matrices of its own"], ["Scale", "fewer"], ["Mask", "3"]]) {
    await goTo(page, step);
    await page.locator(".exercise").getByRole("button", { name: answer, exact: true }).click();
    assert.match(await page.locator(".exercise [role=status]").textContent(), /^Yes\./, step);
  }
  await goTo(page, "Scores");
  const weights = traceOf("the cat sat on the mat", "--causal", "--heads", "2").tensors.weights[0][1];
  await page.locator(".exercise .options button").nth(weights[0] > weights[1] ? 1 : 0).click();
  assert.match(await page.locator(".exercise [role=status]").textContent(), /^It is "/);
  await page.locator(".heads button").nth(1).click(); // another head is another question
  assert.equal(await page.locator(".exercise [role=status]").textContent(), "");
  await page.context().close();
});

test("a matrix is copied as Python, NumPy, C++ and CSV", async () => {
  const page = await opened(["a b"]);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const [[a, b], [c, d]] = traceOf("a b").tensors.weights;
  const expected = {
    Python: `weights = [\n    [${a}, ${b}],\n    [${c}, ${d}],\n]\n`,
    NumPy: `weights = numpy.array([\n    [${a}, ${b}],\n    [${c}, ${d}],\n], dtype=numpy.float32)\n`,
    "C++": `const attend::Tensor weights = attend::Tensor::from({2, 2}, {\n    ${a}f, ${b}f,\n    ${c}f, ${d}f});\n`,
    CSV: `${a},${b}\n${c},${d}\n`,
  };
  for (const [form, text] of Object.entries(expected)) {
    await page.getByLabel("Copy weights as").selectOption(form);
    await until(page, (said) => document.querySelector(".copy [role=status]").textContent === said, `copied as ${form}`);
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
  }
  await page.context().close();
});

test("the picture is saved as SVG and PNG", async () => {
  const page = await opened(["the cat <sat>"]);
  const saved = async (form) => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: `Save as ${form}` }).click()]);
    return readFileSync(await download.path());
  };
  const svg = String(await saved("SVG"));
  assert.match(svg, /^<svg xmlns=/);
  assert.ok(svg.includes("&lt;sat&gt;") && !svg.includes("style="));
  assert.deepEqual([...(await saved("PNG")).subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

const tired = "the cat sat on the mat because it was tired";
const animal = "the animal did not cross the street because it was too tired";
const isInside = (box, { width, height }) => box.left >= 0 && box.top >= 0 && box.right <= width && box.bottom <= height;

test("the opening says why there is attention, is skipped at once, and hides nothing", async () => {
  const page = await opened([tired]);
  assert.match(await page.locator(".why").textContent(), /^Why attention\?/);
  assert.ok(await page.locator(".matrix[data-name=weights]").isVisible());
  assert.ok(await page.getByRole("button", { name: "Skip" }).evaluate((button) => button.getBoundingClientRect().bottom < innerHeight / 4));
  await page.getByRole("button", { name: "Skip" }).click();
  assert.equal(await page.locator(".why").count(), 0);
  await page.getByRole("button", { name: "Why attention?" }).click();
  await page.getByRole("button", { name: "To the steps" }).click();
  assert.equal(await page.locator(".why").count(), 0);
  const linked = await opened([tired], { hash: "#step=scores" }); // a link leads to what it shows
  assert.equal(await linked.locator(".why").count(), 0);
  for (const { context } of [page, linked].map((each) => ({ context: each.context() }))) await context.close();
});

const hasMiniLM = /^minilm /m.test(command("model", "--list"));
test("the opening's numbers are those of the model", { skip: !hasMiniLM && "MiniLM is not there: attend model --get minilm" }, async () => {
  const page = await opened(["a b"]);
  const looks = await page.locator(".look").evaluateAll((figures) => figures.map((figure) => ({
    caption: figure.querySelector("figcaption").textContent,
    shown: [...figure.querySelectorAll("li")].map((item) => ({ token: item.querySelector("span").textContent, weight: Number(item.dataset.weight), percent: item.querySelector("small").textContent, isQuery: item.className === "it" })),
  })));
  assert.equal(looks.length, 4);
  let right = 0;
  for (const { caption, shown } of looks) {
    const text = shown.slice(1, -1).map(({ token }) => token).join(" ");
    const { texts: [{ tokens, query, weights }] } = JSON.parse(command("model", "minilm", text, "--vary", "it=it", "--query", "it", "--json")).variants;
    const row = weights[3][1];
    assert.deepEqual(shown.map(({ token }) => token), tokens);
    assert.equal(shown.findIndex(({ isQuery }) => isQuery), query);
    for (const [key, { weight, percent }] of shown.entries()) {
      assert.ok(Math.abs(weight - row[key]) <= 0.500001e-4, `${tokens[key]}: ${weight}, is ${row[key]}`);
      assert.equal(percent, `${Math.round(row[key] * 100)} %`);
    }
    const [, meant, first, noun, second, other, verdict] = caption.match(/^it is the (\w+)\. The head gives (\d+ %) to (\w+), (\d+ %) to (\w+): (\w+)\.$/);
    for (const [word, share] of [[noun, first], [other, second]]) assert.equal(share, `${Math.round(row[tokens.indexOf(word)] * 100)} %`);
    assert.ok(row[tokens.indexOf(noun)] > row[tokens.indexOf(other)]);
    assert.equal(meant, text.endsWith("tired") ? "animal" : "street");
    assert.equal(verdict, noun === meant ? "right" : "wrong");
    right += noun === meant ? 1 : 0;
  }
  assert.equal(right, 2);
  // What it counts over 40 sentences, and what changes without the head.
  const words = (await page.locator(".why").textContent()).replace(/\s+/g, " ");
  const { held, baselines, texts } = JSON.parse(command("model", "minilm", "--over", fileURLToPath(new URL("../../tests/tasks/referents.tsv", import.meta.url)), "--json")).variants;
  const counts = words.match(/Over (\d+) such sentences head 3\.1 is right in (\d+): .*? The best of the 72 heads is right in (\d+); .*? in some (\d+)\./).slice(1).map(Number);
  assert.deepEqual(counts, [texts.length, held[3][1], Math.max(...held.flat()), baselines.chance]);
  const { cosine_distance: turned } = JSON.parse(command("model", "minilm", animal, "--without", "3.1", "--json")).without;
  assert.equal(words.match(/its cosine to what it was is (\d\.\d+)/)[1], (1 - turned).toFixed(4));
  await page.context().close();
});

test("the opening's steps are on its head's own numbers, and a sentence that is typed on random ones", async () => {
  const page = await opened(["the cat sat"]);
  await page.getByRole("button", { name: "To the steps" }).click();
  assert.deepEqual(await stepNames(page), ["Picture", "Scores", "Scale", "Softmax", "Context"]);
  assert.match(await page.locator(".own-numbers").textContent(), /head 3\.1's own numbers.*; a sentence of yours is computed with random weights/);
  await page.mouse.move(5, 5); // off what came to lie under the pointer
  await until(page, () => document.querySelector(".worked h3").textContent === "Where it looks");
  const seen = {};
  for (const name of await stepNames(page)) {
    await goTo(page, name);
    for (const matrix of await matrices(page)) seen[matrix.name] = matrix.rows.map((row) => row.map(({ value }) => Number(value)));
  }
  // One step follows from the other, and the weights are the command's.
  const { queries, keys, values } = seen;
  assert.deepEqual([queries, keys, values].map((rows) => [rows.length, rows[0].length]), [[14, 32], [14, 32], [14, 32]]);
  const near = (name, expected, within) => expected.forEach((row, i) => row.forEach((number, j) => assert.ok(Math.abs(seen[name][i][j] - number) <= within, `${name}[${i},${j}]: ${seen[name][i][j]}, is ${number}`)));
  const product = (one, other) => one.map((row) => other.map((column) => row.reduce((sum, number, d) => sum + number * column[d], 0)));
  near("scores", product(queries, keys), 2e-5);
  near("scaled_scores", seen.scores.map((row) => row.map((score) => score / Math.sqrt(32))), 2e-6);
  near("context", product(seen.weights, values[0].map((_, d) => values.map((row) => row[d]))), 2e-6);
  if (hasMiniLM) {
    command("model", "minilm", animal, "-o", scratch("opening.attend"));
    const top = (query) => JSON.parse(command("show", scratch("opening.attend"), "--head", "3.1", "--query", String(query), "--json")).top;
    near("weights", seen.weights.map((row, query) => Object.assign([...row], ...top(query).map(({ key, weight }) => ({ [key]: weight })))), 2e-6);
    for (const query of seen.weights.keys()) assert.equal(top(query).length, 8);
  }
  // Its link, its worked sums, and what leads on.
  await goTo(page, "Scores");
  await page.locator(".matrix[data-name=scores] tbody tr").nth(9).locator("td[data-col='2']").click();
  assert.equal(await page.locator(".products output").textContent(), seen.scores[9][2].toFixed(4));
  const { hash } = new URL(page.url());
  assert.equal(hash, "#model=MiniLM&step=scores&query=10&key=3");
  const beginning = await opened(["the cat sat"], { hash: "#model=MiniLM" });
  assert.equal(await beginning.locator(".worked h3").textContent(), "Where it looks");
  await beginning.context().close();
  const linked = await opened(["the cat sat"], { hash });
  assert.equal(await linked.locator(".worked h3").textContent(), `scores(it, animal): ${seen.scores[9][2].toFixed(4)}`);
  await linked.getByRole("button", { name: "Back to the page's sentence" }).click();
  await isTrace(linked, traceOf("the cat sat"));
  await linked.getByLabel("An example of the documents").selectOption("MiniLM");
  assert.equal(await linked.locator(".own-numbers").count(), 1);
  await linked.getByLabel("An example of the documents").selectOption("journey");
  await isTrace(linked, traceOf("--preset", "journey"));
  await page.getByLabel("The sentence", { exact: true }).fill(`${animal}!`);
  assert.equal(await page.locator(".own-numbers").count(), 0);
  await isTrace(page, traceOf(`${animal}!`));
  assert.deepEqual([...await problemsOf(page), ...await problemsOf(linked)], []);
  for (const { context } of [page, linked].map((each) => ({ context: each.context() }))) await context.close();
});

test("on paper all steps stand with what is worked out, and then one again", async () => {
  const page = await opened(["the cat sat", "--d-k", "4", "--d-v", "4", "--embedding-size", "4"]);
  const steps = await stepNames(page);
  const shown = () => page.evaluate(() => [...document.querySelectorAll("main h2")].map((title) => title.textContent));
  assert.equal((await shown()).length, 1);
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  const titles = await shown();
  assert.deepEqual(titles.map((title) => title.split(" ")[0]), steps.map((_, n) => String(n + 1)));
  await page.emulateMedia({ media: "print" });
  assert.deepEqual(await page.locator(".worked").evaluateAll((all) => all.map((each) => [each.className, each.getBoundingClientRect().height > 20])), steps.map(() => ["worked", true]));
  assert.ok(await page.locator(".worked .products").count() >= 3);
  await page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await until(page, () => document.querySelectorAll("main h2").length === 1);
  await page.context().close();
});

test("on a telephone the page begins at its beginning", async () => {
  for (const viewport of [{ width: 390, height: 664 }, { width: 390, height: 844 }]) {
    const page = await opened([tired], { viewport });
    assert.deepEqual(await page.evaluate(() => [scrollY, document.documentElement.scrollWidth]), [0, 390]);
    await page.context().close();
  }
});

test("why the square root: the spreads are those of the command's scores, and scaled scores grow paler", async () => {
  const page = await opened([tired], { hash: "#step=scale" });
  const deviation = (values) => {
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  };
  const label = await page.locator(".growth svg").getAttribute("aria-label");
  const [, sizes, linear, uniform] = label.match(/at (.*?) numbers: mean 0: (.*?); uniform: (.*)$/);
  const numbers = (text) => text.split(", ").map(Number);
  for (const [weights, shown] of [["linear", numbers(linear)], ["uniform", numbers(uniform)]])
    for (const [n, size] of numbers(sizes).entries()) {
      const found = Array.from({ length: 8 }, (_, seed) => deviation(traceOf(animal, "--weights", weights, "--d-k", String(size), "--seed", String(seed)).tensors.scores.flat(2)));
      const sorted = found.sort((a, b) => a - b);
      assert.ok(Math.abs((sorted[3] + sorted[4]) / 2 / shown[n] - 1) < 0.01, `${weights} ${size}: ${(sorted[3] + sorted[4]) / 2}, the page has ${shown[n]}`);
    }
  const strongest = (name) => page.locator(`.matrix[data-name=${name}] td[data-col]`).evaluateAll((cells) => Math.max(...cells.map((cell) => Number(/(\d+)%/.exec(cell.style.background)?.[1] ?? 0))));
  assert.ok(await strongest("scores") > 2 * await strongest("scaled_scores"));
  await page.context().close();
});

test("random numbers are called so where they are first seen", async () => {
  const page = await opened([tired]);
  assert.match(await page.locator(".origin").textContent(), /random numbers: nothing was trained/);
  await page.getByLabel("An example of the documents").selectOption("journey");
  assert.match(await page.locator(".origin").textContent(), /the document's own numbers: its embeddings are written down there/);
  await page.getByLabel("An example of the documents").selectOption("life");
  assert.match(await page.locator(".origin").textContent(), /the document's own numbers, which it draws at random/);
  await page.context().close();
});

// WCAG's contrast of two colours as the browser writes them.
const contrast = (one, other) => {
  const [a, b] = [one, other].map((colour) => colour.match(/\d+/g).slice(0, 3).map((byte) => byte / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)));
  const light = ([r, g, blue]) => 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  return (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
};
test("the picture of any sentence can be read: two decimals in each cell, colours over the range that there is, one for all heads", async () => {
  const page = await opened([tired, "--heads", "2"]);
  const trace = traceOf(tired, "--heads", "2");
  const largest = Math.max(...trace.tensors.weights.flat(2));
  const cells = () => page.locator(".matrix[data-name=weights] td[data-col]").evaluateAll((all) => all.map((cell) => ({
    value: Number(cell.dataset.value), colour: getComputedStyle(cell).backgroundColor, read: getComputedStyle(cell, "::after").content, size: parseFloat(getComputedStyle(cell, "::after").fontSize),
  })));
  const colourOf = new Map();
  for (const head of [0, 1]) {
    await page.locator(".heads button").nth(head).click();
    const seen = await cells();
    seen.forEach(({ value, colour, read, size }) => {
      assert.equal(read, `"${value.toFixed(2).slice(1)}"`);
      assert.ok(size >= 11);
      colourOf.set(value.toFixed(3), [...(colourOf.get(value.toFixed(3)) ?? []), colour]);
    });
    const [least, most] = [seen.reduce((a, b) => (a.value < b.value ? a : b)), seen.reduce((a, b) => (a.value > b.value ? a : b))];
    assert.ok(contrast(least.colour, most.colour) > 2, `${least.colour}, ${most.colour}`);
  }
  const apart = (a, b) => Math.max(...a.match(/\d+/g).map((byte, place) => Math.abs(byte - b.match(/\d+/g)[place])));
  for (const [value, colours] of colourOf) for (const colour of colours) assert.ok(apart(colour, colours[0]) <= 4, `${value}: ${colours}`);
  const range = page.getByLabel("Range of the weights' colours");
  const top = Number((await range.locator("option").first().textContent()).match(/to ([\d.]+)/)[1]);
  assert.ok(largest <= top && top <= 1.6 * largest, `${largest}, ${top}`);
  assert.match(await page.locator(".shown .key").textContent(), new RegExp(`the largest weight here is ${largest.toFixed(4)}`));
  const end = () => page.locator(".legend i").last().textContent();
  assert.equal(Number(await end()), top);
  await range.selectOption("whole");
  assert.equal(await end(), "1");
  await page.context().close();
});

// What must stand together in a step: a formula on one line, no sign without what follows it, nothing cut in what is worked out.
const layoutOf = (page) => page.evaluate(() => {
  const faults = [];
  for (const formula of document.querySelectorAll("header .formula")) {
    const lines = formula.getBoundingClientRect().height / parseFloat(getComputedStyle(formula).lineHeight);
    if (lines > 1.3) faults.push(`the formula has ${lines} lines`);
    if (formula.scrollWidth > formula.clientWidth) faults.push("the formula is cut");
  }
  for (const sign of document.querySelectorAll(".sign")) {
    const [own, next] = [sign.getBoundingClientRect(), sign.nextElementSibling?.getBoundingClientRect()];
    if (!next || next.left < own.right || next.top > own.top || next.bottom < own.bottom) faults.push(`${sign.textContent} stands alone`);
  }
  const aside = document.querySelector("aside");
  if (aside.scrollWidth > aside.clientWidth) faults.push("what is worked out is cut");
  const rows = [...document.querySelectorAll(".together")].map((element) => element.classList.contains("fits"));
  return { faults, rows };
});
for (const width of [1024, 1280, 1600])
  for (const args of [[tired, "--heads", "2", "--positions", "--causal"], ["--preset", "journey"], ["--preset", "life-multihead"]])
    test(`${width} pixels: formulas on one line, matrices side by side, ${args.join(" ")}`, async () => {
      const page = await opened(args, { viewport: { width, height: 900 } });
      for (const name of await stepNames(page)) {
        await goTo(page, name);
        await drawn(page);
        const { faults, rows } = await layoutOf(page);
        assert.deepEqual(faults, [], name);
        // Two maps of digits up to -140.3456 stand below each other.
        if (width >= 1280 && !args.includes("life-multihead")) assert.ok(rows.every(Boolean), `${name}: ${rows}`);
      }
      await page.context().close();
    });

test("compare puts before beside after where both fit", async () => {
  const page = await opened([tired, "--heads", "2"]);
  await page.getByRole("button", { name: "Compare" }).click();
  for (const step of ["Picture", "Softmax"]) {
    await goTo(page, step);
    await drawn(page);
    const [now, kept] = await page.locator(".matrix[data-name=weights]").evaluateAll((maps) => maps.map((map) => map.getBoundingClientRect().toJSON()));
    assert.ok(kept.left >= now.right, `${step}: ${JSON.stringify([now, kept])}`);
    assert.ok(kept.right <= 1280);
    const tops = await page.locator(".matrix[data-name=weights] table").evaluateAll((maps) => maps.map((map) => map.getBoundingClientRect().top));
    assert.ok(Math.abs(tops[0] - tops[1]) < 2, `${step}: ${tops}`);
  }
  await page.context().close();
});

test("phone: what was touched and how it comes about are seen together", async () => {
  const viewport = { width: 390, height: 844 };
  const page = await opened([tired, "--heads", "2"], { hasTouch: true, isMobile: true, viewport });
  for (const [step, name] of [["Picture", "weights"], ["q, k, v", "values"], ["Scores", "scores"], ["Softmax", "weights"], ["Context", "context"]]) {
    await page.locator(".rail li button", { hasText: step }).first().tap();
    await page.keyboard.press("Escape");
    await until(page, () => document.querySelector(".fold").textContent === "Worked out");
    const cell = page.locator(`.matrix[data-name=${name}] tbody tr`).nth(8).locator("td[data-col='2']");
    await cell.evaluate((element) => scrollBy({ top: element.getBoundingClientRect().bottom - innerHeight + 90, behavior: "instant" })); // near the lower edge, where the sheet will be
    await cell.tap();
    await until(page, () => document.querySelector(".fold").textContent === "Fold");
    assert.match(await page.locator(".worked h3").textContent(), /was/, step);
    const boxes = await page.evaluate((touched) => [document.querySelector(`.matrix[data-name=${touched}] td.cell`), document.querySelector(".worked h3"), document.querySelector(".worked")].map((element) => element.getBoundingClientRect().toJSON()), name);
    const [touched, heading, sheet] = boxes;
    assert.ok(isInside(touched, viewport) && isInside(heading, viewport), `${step}: ${JSON.stringify(boxes)}`);
    assert.ok(touched.bottom <= sheet.top, `${step}: ${JSON.stringify(boxes)}`);
    assert.ok(sheet.height <= 0.45 * viewport.height, `${step}: ${JSON.stringify(sheet)}`);
  }
  await page.getByRole("button", { name: "Fold" }).click();
  assert.ok(await page.locator(".worked").evaluate((sheet) => sheet.getBoundingClientRect().height < 80));
  assert.ok(await page.locator(".worked h3").isVisible());
  await page.getByRole("button", { name: "Worked out" }).click();
  assert.ok(await page.locator(".worked .products").isVisible());
  await page.context().close();
});

for (const [width, hasTouch] of [[390, true], [1024, true], [1280, false]])
  test(`${width} pixels: what can be touched has 32 pixels or more, ${hasTouch ? "by fingers" : "by a mouse"}`, async () => {
    const page = await opened([tired, "--heads", "2"], { hasTouch, isMobile: hasTouch, viewport: { width, height: 844 } });
    await page.locator(".controls summary").click();
    const targets = `button, select, input, textarea, summary, label.switch${hasTouch ? ", td[data-col]" : ""}`;
    for (const name of await stepNames(page)) {
      await goTo(page, name);
      const small = await page.locator(targets).evaluateAll((elements) => elements.filter((element) => element.checkVisibility()).map((element) => {
        const { width, height } = element.getBoundingClientRect();
        return { width, height, said: `${element.tagName} ${element.className} ${element.textContent.slice(0, 20)} ${width.toFixed(1)} x ${height.toFixed(1)}` };
      }).filter(({ width, height }) => Math.min(width, height) < 31.99).map(({ said }) => said));
      assert.deepEqual(small.slice(0, 5), [], name);
    }
    await page.context().close();
  });

test("each widget is one Tab stop, in which arrows move; elsewhere they change the step", async () => {
  const page = await opened([tired, "--heads", "4"]);
  const stops = (within) => page.locator(`${within} button`).evaluateAll((buttons) => buttons.filter(({ tabIndex, disabled }) => tabIndex >= 0 && !disabled).length);
  const focused = () => page.evaluate(() => document.activeElement.textContent.trim());
  const step = () => page.locator(".rail [aria-current]").textContent();
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the step");
  assert.ok(isInside(await page.evaluate(() => document.activeElement.getBoundingClientRect().toJSON()), { width: 1280, height: 900 })); // it is seen
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "step");
  assert.equal(await step(), "1 Picture");
  for (const widget of [".rail", ".heads", ".sentence"]) assert.equal(await stops(widget), 1, widget);
  const tabTo = async (within) => {
    for (let presses = 0; presses < 12; ++presses) {
      if (await page.evaluate((selector) => document.activeElement.closest(selector) !== null, within)) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`${within} is not reached`);
  };
  await tabTo(".heads");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  assert.equal(await focused(), "head 2");
  await until(page, () => document.querySelector(".heads [aria-pressed=true]").textContent.trim() === "head 2");
  await page.keyboard.press("Home");
  assert.equal(await focused(), "head 0");
  assert.equal(await step(), "1 Picture");
  await tabTo(".sentence");
  assert.equal(await focused(), "cat");
  await page.keyboard.press("ArrowRight");
  await until(page, () => document.querySelector(".worked h3").textContent === "Where sat looks");
  await page.keyboard.press("End");
  await until(page, () => document.querySelector(".worked h3").textContent === "Where tired looks");
  assert.equal(await step(), "1 Picture");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("ArrowRight");
  await until(page, () => document.querySelector(".rail [aria-current]").textContent === "2 Words");
  assert.equal(await stops(".ids"), 1);
  await page.locator(".rail [aria-current]").focus();
  for (const name of ["3 Embeddings", "4 q, k, v"]) {
    await page.keyboard.press("ArrowRight");
    await until(page, (reached) => document.activeElement.textContent === reached, name);
  }
  await page.context().close();
});

test("keys that come faster than the page is drawn are all kept", async () => {
  const page = await opened([tired, "--heads", "6"]);
  const press = (key, times) => page.evaluate(([pressed, count]) => {
    for (let turn = 0; turn < count; ++turn) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: pressed, bubbles: true, cancelable: true }));
  }, [key, times]);
  await press("ArrowRight", 5);
  await until(page, () => document.querySelector(".rail [aria-current]").textContent === "6 Scale");
  await press("ArrowLeft", 5);
  await until(page, () => document.querySelector(".rail [aria-current]").textContent === "1 Picture");
  await page.locator(".heads button").first().focus();
  await press("ArrowRight", 5);
  await until(page, () => document.querySelector(".heads [aria-pressed=true]").textContent.trim() === "head 5");
  await page.locator(".matrix[data-name=weights] td[data-col='0']").first().click();
  await page.locator("td.cell").focus();
  await press("ArrowDown", 5);
  await until(page, () => document.querySelector("td.cell").parentElement.sectionRowIndex === 5);
  await page.getByLabel("The sentence", { exact: true }).fill(Array.from({ length: 60 }, (_, place) => `w${place}`).join(" "));
  await page.locator(".painted canvas").first().focus();
  await page.keyboard.press("Home");
  await until(page, () => document.querySelector(".worked h3").textContent === "Where w5 looks");
  await press("ArrowDown", 5);
  await until(page, () => document.querySelector(".worked h3").textContent === "Where w10 looks");
  await page.context().close();
});

for (const colorScheme of ["light", "dark"])
  test(`numbers of either sign do not look like weights, ${colorScheme}`, async () => {
    const page = await opened([tired], { colorScheme, hash: "#step=softmax" });
    const colours = (name) => page.locator(`.matrix[data-name=${name}] td[data-col]`).evaluateAll((cells) => cells.map((cell) => {
      const canvas = new OffscreenCanvas(1, 1).getContext("2d"); // color-mix() as bytes
      canvas.fillStyle = getComputedStyle(cell).backgroundColor;
      canvas.fillRect(0, 0, 1, 1);
      return { value: Number(cell.dataset.value), colour: [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3) };
    }));
    const signed = await colours("scaled_scores");
    const least = signed.reduce((a, b) => (a.value < b.value ? a : b));
    const most = signed.reduce((a, b) => (a.value > b.value ? a : b));
    // The library's ramp (tests/picture/colour_test.cpp), which begins with what is nearest to the page.
    const bar = await page.locator(".legend").first().evaluate((legend) => legend.style.backgroundImage);
    const ramp = [...bar.matchAll(/rgb\((\d+), (\d+), (\d+)\)/g)].map(([, ...bytes]) => bytes.map(Number));
    const ends = [ramp[0], ramp[6], ramp[12]];
    assert.deepEqual(colorScheme === "dark" ? ends.reverse() : ends, [[0xfc, 0xfb, 0xec], [0x20, 0x97, 0x99], [0x1a, 0x14, 0x46]]);
    for (const { colour } of [least, most])
      for (const weight of ramp) assert.ok(Math.hypot(...colour.map((byte, channel) => byte - weight[channel])) > 40, `${colour} beside ${weight}`);
    await page.context().close();
  });

// Every text on show, and what is said of an element, but for the reader's words and what stands in matrices.
const textsOf = (page) => page.evaluate(() => {
  const readers = "bdi, code, output, textarea, td, th[title], .looked span, .languages, .copy option, .formula output";
  const found = new Set();
  const walker = document.createTreeWalker(document.querySelector(".page"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(readers)) found.add(walker.currentNode.data.trim());
  for (const element of document.querySelectorAll(".page *"))
    for (const name of ["aria-label", "title", "placeholder"]) if (element.hasAttribute(name) && !element.closest(`.sentence button, ${readers}`)) found.add(element.getAttribute(name));
  return [...found, document.title];
});
// Of a page, step by step, with all that can be opened open.
const walked = async (page) => {
  const found = new Set(await textsOf(page)); // with the opening
  const steps = await page.locator(".rail li button").count();
  for (let step = 0; step < steps; ++step) {
    await page.locator(".rail li button").nth(step).click();
    await page.locator("details").evaluateAll((all) => all.forEach((each) => { each.open = true; }));
    const closed = page.locator(".term[aria-expanded=false]");
    while (await closed.count()) await closed.first().click();
    if (await page.locator(".exercise .options button:enabled").count()) await page.locator(".exercise .options button").last().click();
    for (const text of await textsOf(page)) found.add(text);
  }
  return found;
};
// What is the same in every language: names of tensors and of programs, formulas, the sentence's nouns.
const names = /\b(attend|attention|norm|MLP|BERT|MiniLM|embedding_table|ids|softmax|Softmax|logits?|exp|sin|cos|inf|nn|torch|Linear|d_k|d_v|w_\w+|scaled_scores|scores|queries|keys|values|context|concat_heads|output|inputs(_2)?|embeddings(_2)?|positions|weights|values|embedding|animal|street|query|id|lift|seed|it|nat|Vaswani|et al|Kobayashi)\b/g;
const isSaid = (text) => /[A-Za-z]{2}/.test(text.replace(names, ""));
const spokenOf = [
  { args: ["--preset", "my-name-multihead"] },
  { args: ["--preset", "life-cross"] },
  { args: ["the cat sat on the mat", "--heads", "2", "--causal", "--window", "2", "--positions"], compares: true },
  { args: ["the cat sat", "--cross", "le chat dort", "--no-scale"] },
  { args: ["the cat sat"], opens: true },
];
for (const { args, compares, opens } of spokenOf)
  test(`${opens ? "the opening's head" : args.join(" ")}: no step says anything in English where another language is asked for`, async () => {
    const shown = {};
    for (const language of ["en", "it", "zh"]) {
      const page = await opened(args, { search: `?lang=${language}` });
      if (opens) await page.locator(".why p button").click();
      if (compares) {
        await page.locator(".switches > button").click();
        await page.getByRole("switch").nth(2).uncheck();
      }
      shown[language] = await walked(page);
      assert.equal(await page.evaluate(() => document.documentElement.lang), language);
      assert.deepEqual(await problemsOf(page), []);
      await page.context().close();
    }
    const said = [...shown.en].filter(isSaid);
    assert.ok(said.length > 70, String(said.length));
    for (const language of ["it", "zh"]) {
      assert.deepEqual(said.filter((text) => shown[language].has(text)), [], language);
      assert.ok([...shown[language]].filter(isSaid).length >= (language === "it" ? 0.9 * said.length : 0));
    }
  });

test("another language is the same place, and a language that there is not is English", async () => {
  const page = await opened(["the cat sat on the mat", "--heads", "2"]);
  assert.equal(await page.locator(".languages [aria-current]").textContent(), "English");
  await page.getByRole("link", { name: "Italiano" }).click();
  await page.waitForSelector(".rail");
  assert.match(await page.locator(".why h2").textContent(), /^Perché l'attenzione\?$/); // nothing was touched: it begins at the beginning
  await page.locator(".rail li button", { hasText: "Punteggi" }).click();
  await page.locator(".heads button").nth(1).click();
  await page.locator(".matrix[data-name=scores] tbody tr").nth(3).locator("td[data-col='2']").click();
  await page.getByRole("link", { name: "中文" }).click();
  await page.waitForSelector(".rail");
  assert.equal(await page.locator(".rail [aria-current]").textContent(), "5 得分");
  assert.equal(await page.locator(".worked h3").textContent(), `scores(on, sat): ${traceOf("the cat sat on the mat", "--heads", "2").tensors.scores[1][3][2].toFixed(4)}`);
  assert.equal(await page.locator(".heads [aria-pressed=true]").textContent().then((text) => text.trim()), "头 1");
  await isTrace(page, traceOf("the cat sat on the mat", "--heads", "2"));
  await page.getByRole("link", { name: "English" }).click();
  await page.waitForSelector(".rail");
  assert.equal(new URL(page.url()).search, "");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
  const other = await opened(["a b"], { search: "?lang=xx" });
  assert.equal(await other.locator(".rail [aria-current]").textContent(), "1 Picture");
  assert.equal(await other.evaluate(() => document.documentElement.lang), "en");
  assert.deepEqual(await problemsOf(other), []);
  await other.context().close();
});

test("a sentence without spaces: the page says so, and puts them between words", async () => {
  const page = await opened(["我喜欢猫。"], { search: "?lang=zh" });
  assert.match(await page.locator(".spaceless").textContent(), /没有空格/);
  assert.equal(await page.locator(".matrix[data-name=weights] tbody tr").count(), 1);
  await page.locator(".spaceless button").click();
  assert.equal(await page.locator(".sentences textarea").first().inputValue(), "我 喜欢 猫。");
  assert.equal(await page.locator(".spaceless").count(), 0);
  matches((await matrices(page))[0], traceOf("我 喜欢 猫。").tensors.weights);
  for (const text of ["the", "a-b", "猫", "我 喜欢猫"]) {
    await page.locator(".sentences textarea").first().fill(text);
    assert.equal(await page.locator(".spaceless").count(), 0, text);
  }
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});

for (const language of ["it", "zh"])
  for (const width of [390, 1024, 1280])
    test(`${language}, ${width} pixels: nothing is wider than the screen, in any step`, async () => {
      const page = await opened(everyStep, { search: `?lang=${language}`, viewport: { width, height: 900 } });
      for (const name of await stepNames(page)) {
        await goTo(page, name);
        assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, name);
      }
      await page.context().close();
    });

test("why exp: the ratio of two weights of the row is exp of their scores' difference", async () => {
  const page = await opened(["the cat sat on the mat", "--causal"], { hash: "#step=softmax" });
  const { weights, logits } = traceOf("the cat sat on the mat", "--causal").tensors;
  const why = page.locator(".why-exp");
  const numbers = async () => (await why.locator("output").allTextContents()).map(Number);
  for (const [query, key] of [[3, 0], [5, 2], [5, 5]]) {
    await page.locator(".matrix[data-name=weights] tbody tr").nth(query).locator(`td[data-col='${key}']`).click();
    const first = logits[query].indexOf(Math.max(...logits[query].filter((logit) => logit !== null)));
    const falling = logits[query].filter((logit) => logit !== null).sort((a, b) => b - a);
    const second = key === first ? logits[query].indexOf(falling[1]) : key;
    const [power, ratio] = await numbers();
    assert.ok(Math.abs(power / Math.exp(logits[query][first] - logits[query][second]) - 1) < 1e-3, `${query}, ${key}`);
    assert.ok(Math.abs(ratio / (weights[query][first] / weights[query][second]) - 1) < 1e-3, `${query}, ${key}`);
    assert.equal(power, ratio);
  }
  await page.locator(".matrix[data-name=weights] tbody tr").first().locator("td[data-col='0']").click();
  assert.match(await why.textContent(), /the₁ sees one key, which gets all/);
  await page.context().close();
  const apart = await opened(["the cat sat", "--weights", "uniform", "--no-scale", "--d-k", "256"], { hash: "#step=softmax" }); // a weight that no f32 holds
  assert.match(await apart.locator(".why-exp").textContent(), /too small for an f32/);
  await apart.context().close();
});

test("why several heads: what two give in one row, of the trace's own numbers", async () => {
  const args = ["the cat sat on the mat", "--heads", "3", "--weights", "uniform"];
  const page = await opened(args);
  const { weights } = traceOf(...args).tensors;
  const wordsOf = ["the₁", "cat", "sat", "on", "the₅", "mat"];
  const said = () => page.locator(".several p").nth(1).textContent();
  let apart = 0;
  for (const [query, word] of wordsOf.entries()) {
    await page.locator(".sentence button").nth(query).click();
    const looks = weights.map((head) => ({ weight: Math.max(...head[query]), key: head[query].indexOf(Math.max(...head[query])) }));
    const found = (await said()).match(/Here head (\d) gives ([\d.]+) of (\S+) to (\S+)\. Head (\d) gives ([\d.]+) of it to (\S+)\. Together this is ([\d.]+)\.( One row could not)?/);
    if (new Set(looks.map(({ key }) => key)).size === 1) {
      assert.match(await said(), /all heads here give most to/);
      continue;
    }
    const [, first, much, of, key, second, more, other, sum, over] = found;
    assert.deepEqual([of, wordsOf.indexOf(key), wordsOf.indexOf(other)], [word, looks[first].key, looks[second].key]);
    assert.notEqual(key, other);
    assert.deepEqual([much, more, sum], [looks[first].weight, looks[second].weight, looks[first].weight + looks[second].weight].map((number) => number.toFixed(4)));
    assert.equal(over !== undefined, Number(sum) > 1);
    ++apart;
  }
  assert.ok(apart >= 3, String(apart));
  await page.getByLabel("heads", { exact: true }).fill("1");
  assert.match(await said(), /Here there is one head/);
  await page.context().close();
});

test("what cross-attention is for stands where it is, and a Transformer's block after the last step", async () => {
  const page = await opened(["the cat sat", "--cross", "le chat dort"]);
  assert.match(await page.locator(".step .words").textContent(), /A translator reads/);
  await page.getByRole("switch", { name: "second sentence" }).uncheck();
  assert.doesNotMatch(await page.locator(".step .words").textContent(), /A translator reads/);
  await goTo(page, "Context");
  assert.equal(await page.locator("svg.block").count(), 1);
  await page.getByLabel("heads", { exact: true }).fill("2");
  assert.equal(await page.locator("svg.block").count(), 0);
  await goTo(page, "Output");
  assert.equal(await page.locator("svg.block").count(), 1);
  await page.context().close();
});

test("embedded: what computes stands alone, in an iframe, with a link to all of it", async () => {
  const page = await opened(["the cat sat"], { search: "?embed=1&lang=it", viewport: { width: 640, height: 480 } });
  assert.deepEqual(await page.evaluate(() => ["header.top", ".why", "footer"].map((part) => document.querySelectorAll(part).length)), [0, 0, 0]);
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 640);
  await page.getByLabel("teste", { exact: true }).fill("2");
  await goTo(page, "Punteggi");
  matches((await matrices(page))[0], traceOf("the cat sat", "--heads", "2").tensors.scores[0]);
  const [full] = await Promise.all([page.context().waitForEvent("page"), page.locator(".in-full a").click()]);
  await full.waitForSelector(".rail");
  assert.equal(new URL(full.url()).search, "?lang=it");
  assert.equal(await full.locator(".rail [aria-current]").textContent(), "5 Punteggi");
  assert.equal(await full.locator("header.top, footer").count(), 2);
  writeFileSync(scratch("course.html"), `<iframe src="${page.url()}"></iframe>`);
  await full.goto(pathToFileURL(scratch("course.html")).href);
  const frame = full.frameLocator("iframe");
  assert.equal(await frame.locator(".rail [aria-current]").textContent(), "5 Punteggi");
  assert.deepEqual(await problemsOf(page), []);
  await page.context().close();
});
