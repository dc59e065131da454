// What the browser tests share: pages that the command wrote, open in Chromium without a network, and what they show.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const here = path.dirname(fileURLToPath(import.meta.url));
const attend = process.env.ATTEND ?? path.join(here, "../../build/release/attend");
const folder = mkdtempSync(path.join(tmpdir(), "attend-page-"));
let browser;
let pages = 0;

export const command = (...args) => execFileSync(attend, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });
export const traceOf = (...args) => JSON.parse(command("explain", ...args, "--json"));

export const open_browser = async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
};
export const close_browser = async () => {
  await browser?.close();
  rmSync(folder, { recursive: true });
};

// What is waited for comes, however late; what does not come the runner's limit ends (--test-timeout).
const new_page = async (options) => {
  const context = await browser.newContext({ offline: true, ...options });
  context.setDefaultTimeout(0);
  return context.newPage();
};

// A file in the tests' folder, which is gone at last.
export const scratch = (name) => path.join(folder, name);

// A file, once it shows `selector`. page.problems gathers what a page must not have: requests but for files below `within`, words on
// the console, breaches of its policy.
export const page_at = async (file, selector, { hash = "", search = "", within = file, ...options } = {}) => {
  const page = await new_page({ viewport: { width: 1280, height: 900 }, ...options });
  page.problems = [];
  page.on("request", (request) => { if (!request.url().startsWith(pathToFileURL(within).href) && !/^(data|blob):/.test(request.url())) page.problems.push(`asked for ${request.url()}`); });
  page.on("console", (message) => page.problems.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.addInitScript(() => {
    window.breaches = [];
    document.addEventListener("securitypolicyviolation", (event) => window.breaches.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(pathToFileURL(file).href + search + hash);
  if (options.javaScriptEnabled !== false) await page.waitForSelector(selector);
  return page;
};

// The page that `attend ARGS -o page.html` writes.
export const written = async (args, selector, options) => {
  const file = path.join(folder, `${++pages}.html`);
  command(...args, "-o", file);
  return page_at(file, selector, options);
};
export const opened = (args, options) => written(["explain", ...args], ".rail", options);

// The same page as a notebook shows it: in a frame that reaches nothing around it (python/src/explain.cpp).
export const framed = async (...args) => {
  const file = path.join(folder, `${++pages}.html`);
  command(...args, "-o", file);
  const page = await new_page({ viewport: { width: 1000, height: 800 } });
  page.problems = [];
  page.on("console", (message) => page.problems.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => page.problems.push(String(error)));
  await page.evaluate((text) => {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts allow-downloads";
    frame.srcdoc = text;
    frame.style.cssText = "width: 100%; height: 700px";
    document.body.append(frame);
  }, readFileSync(file, "utf8"));
  return page;
};

// What was asked for last is drawn: sizes that follow from a layout are there.
export const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

// Until it is true in the page. (Playwright's own waitForFunction() asks again by eval, which the page's policy refuses.)
export const until = async (page, isTrue, ...args) => {
  while (!(await page.evaluate(isTrue, ...args))) await drawn(page);
};

export const problemsOf = async (page) => [...page.problems, ...(await page.evaluate(() => window.breaches))];

export const stepNames = (page) => page.locator(".rail li button").evaluateAll((buttons) => buttons.map((button) => button.textContent.replace(/^\d+ /, "")));
export const goTo = (page, name) => page.locator(".rail li button", { hasText: name }).first().click();

// The matrices on show, as rows of what is written and of what it stands for.
export const matrices = (page) =>
  page.locator(".matrix[data-name]").evaluateAll((figures) =>
    figures.filter((figure) => figure.querySelector("table[role=grid]")).map((figure) => ({
      name: figure.dataset.name,
      rows: [...figure.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td[data-col]")].map((cell) => ({ text: cell.textContent, value: cell.dataset.value }))),
    })),
  );
