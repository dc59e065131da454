// How quick the explorer is in this machine's Chromium, of pages that the command wrote: the first view; of a model, what is
// typed, written and asked; of a recording, parts of a map and frames while it pans. Usage: node explorer_speed.mjs PAGE.html ...
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];
const ms = (time) => `${time.toFixed(time < 20 ? 1 : 0)} ms`;
const quiet = async (page) => {
  await page.waitForTimeout(50);
  while ((await page.locator(".status").textContent()) !== "") await page.waitForTimeout(20);
};

// kB that the largest process of a page has.
const renderer = () =>
  Math.max(...readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map((name) => {
    try {
      if (!readFileSync(`/proc/${name}/cmdline`, "utf8").includes("--type=renderer")) return 0;
      return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${name}/status`, "utf8"))[1]);
    } catch {
      return 0; // it has just ended
    }
  }));

// From a letter to what it changed, on screen.
const typing = async (page) => {
  const text = await page.locator("textarea.text").first().inputValue();
  await page.evaluate(() => { window.blocked = []; });
  const times = [];
  for (let n = 0; n < 15; ++n) {
    times.push(await page.evaluate((next) => new Promise((done) => {
      const field = document.querySelector("textarea.text"), status = document.querySelector(".status");
      const begin = performance.now();
      new MutationObserver((_, observer) => {
        if (status.textContent !== "") return;
        observer.disconnect();
        requestAnimationFrame(() => done(performance.now() - begin));
      }).observe(status, { childList: true, characterData: true, subtree: true });
      field.value = next;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }), text + "!".repeat(n % 2)));
    await page.waitForTimeout(50);
  }
  const blocked = await page.evaluate(() => window.blocked);
  console.log(`  typed: ${ms(median(times))} until all heads are drawn; the main thread's longest task ${blocked.length ? ms(Math.max(...blocked)) : "under 50 ms"}`);
};

const writing = async (page) => {
  const begin = Date.now();
  await page.getByRole("button", { name: "Write on" }).click();
  const first = await page.locator(".said button").first().waitFor().then(() => Date.now());
  await page.evaluate(() => new Promise((done) => { const stop = window.attend.subscribe(() => { if (window.attend.state.written.words.length >= 24) window.attend.stop(), stop(), done(); }); }));
  const [words, end] = [await page.evaluate(() => window.attend.state.written.words.length), Date.now()];
  await quiet(page);
  console.log(`  writes: the first word after ${ms(first - begin)}, then ${(((words - 1) * 1000) / (end - first)).toFixed(1)} words/s`);
  const asked = Date.now();
  await page.locator(".likeliest button").first().click();
  await page.waitForSelector(".why");
  console.log(`  why, with the lens: ${ms(Date.now() - asked)}`);
};

const maps = async (page) => {
  const size = await page.evaluate(() => window.attend.state.pass.layers[0].queries);
  for (const side of [256, 1024].filter((each) => each <= size)) {
    const times = await page.evaluate(async (count) => {
      const all = [];
      for (let n = 0; n < 9; ++n) {
        const begin = performance.now();
        await window.attend.map([0, n % 12], [n, n + count], [0, count], count);
        all.push(performance.now() - begin);
      }
      return all;
    }, side);
    console.log(`  ${side} x ${side} pairs, exact: ${ms(median(times))}`);
  }
  const box = await page.locator(".map canvas").boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  for (let n = 0; n < 8; ++n) await page.mouse.wheel(0, -100);
  await page.waitForTimeout(500);
  const frames = page.evaluate(() => new Promise((done) => {
    const times = [];
    const tick = (now) => { times.push(now); if (now - times[0] < 2000) requestAnimationFrame(tick); else done(times.slice(1).map((time, n) => time - times[n])); };
    requestAnimationFrame(tick);
  }));
  await page.mouse.down();
  for (let n = 0; n < 90; ++n) {
    await page.mouse.move(box.x + box.width / 2 + 40 * Math.sin(n / 9), box.y + box.height / 2 - n);
    await page.waitForTimeout(16);
  }
  await page.mouse.up();
  console.log(`  panning: ${(1000 / median(await frames)).toFixed(0)} frames/s`);
};

for (const file of process.argv.slice(2)) {
  const page = await (await browser.newContext({ offline: true, viewport: { width: 1280, height: 900 } })).newPage();
  await page.addInitScript(() => {
    window.blocked = [];
    new PerformanceObserver((list) => window.blocked.push(...list.getEntries().map(({ duration }) => duration))).observe({ entryTypes: ["longtask"] });
  });
  const begin = Date.now();
  await page.goto(pathToFileURL(path.resolve(file)).href);
  await page.waitForSelector(".looking", { timeout: 120000 });
  console.log(`${path.basename(file)}\n  first view: ${ms(Date.now() - begin)}`);
  await quiet(page);
  await page.waitForTimeout(3000); // what it has let go of is gone
  console.log(`  memory of its process: ${Math.round(renderer() / 1e3)} MB`);
  const live = await page.evaluate(() => window.attend.state.info);
  if (live) await typing(page);
  if (live?.decoder) await writing(page);
  if (!live) await maps(page);
  await page.context().close();
}
await browser.close();
