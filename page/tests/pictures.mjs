// Draws docs/pictures/page/: what the pages look like. Needs the models that `attend model --get` fetches.
// Usage: node tests/pictures.mjs
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { close_browser, command, goTo, open_browser, opened, page_at, scratch, until, written } from "./browser.mjs";

const folder = fileURLToPath(new URL("../../docs/pictures/page/", import.meta.url));
const args = ["the cat sat on the mat because it was tired", "--heads", "2"]; // README.md says so beside its picture
const pictures = [
  { name: "picture", step: "Picture", viewport: { width: 1280, height: 1000 } },
  { name: "scores", step: "Scores", viewport: { width: 1280, height: 1000 } },
  { name: "softmax-dark", step: "Softmax", viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
  { name: "phone", step: "Picture", viewport: { width: 390, height: 844 }, colorScheme: "dark" },
];
await mkdir(folder, { recursive: true });
await open_browser();
for (const { name, step, ...options } of pictures) {
  const page = await opened(args, options);
  await page.getByRole("button", { name: "Skip" }).click(); // the opening
  await goTo(page, step);
  await page.mouse.move(0, 0);
  await page.screenshot({ path: `${folder}${name}.png` });
}
const explorers = [
  { name: "explorer", model: "minilm", text: "the animal did not cross the street because it was too tired", viewport: { width: 1280, height: 960 }, hash: "#head=3.1&query=9&key=2" },
  { name: "explorer-why", model: "smollm2", text: "The capital of France is", viewport: { width: 1280, height: 1000 }, asks: true },
  { name: "explorer-trace", model: "smollm2", text: "The capital of France is", more: ["--why", " Paris", "--against", " Rome"], viewport: { width: 1280, height: 1000 }, traces: true },
];
for (const { name, model, text, more = [], hash, asks, traces, ...options } of explorers) {
  const page = await written(["model", model, text, "--live", ...more], ".looking", options);
  if (hash) await page.evaluate((to) => { location.hash = to; }, hash);
  if (asks) await page.locator(".likeliest button").first().click();
  if (asks) await page.waitForSelector(".why");
  if (traces) await page.getByRole("button", { name: "Trace it back" }).click();
  if (traces) await until(page, () => window.attend.state.why.traced?.left === 0);
  await page.mouse.move(0, 0);
  await page.waitForTimeout(1000); // the map's last refinement
  await (traces ? page.locator(".trace") : page).screenshot({ path: `${folder}${name}.png` });
}
command("class", "-o", scratch("class"));
const page = await page_at(scratch("class/paris.html"), ".class", { viewport: { width: 1000, height: 1180 }, hash: "#answer" });
await page.screenshot({ path: `${folder}class.png` });
await close_browser();
