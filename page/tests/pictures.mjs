// Draws docs/pictures/page/: what the page looks like. Usage: node tests/pictures.mjs
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { close_browser, goTo, open_browser, opened } from "./browser.mjs";

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
await close_browser();
