// How fast the page answers, in Chromium: what benchmarks/README.md says of it. Usage: node tests/speed.mjs
import { close_browser, goTo, open_browser, opened } from "./browser.mjs";

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const said = (name, values, unit) => console.log(`${name}: median ${median(values).toFixed(1)} ${unit} (${Math.min(...values).toFixed(1)} to ${Math.max(...values).toFixed(1)})`);

await open_browser();
const page = await opened(["the animal did not cross the street because it was too tired", "--heads", "8"], { viewport: { width: 1440, height: 900 } });
for (const step of ["Picture", "Scores", "Softmax"]) {
  await goTo(page, step);
  // From a keystroke to the frame that shows its numbers.
  const keystrokes = await page.evaluate(async () => {
    const field = document.querySelector("textarea");
    const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set;
    const times = [];
    for (let turn = 0; turn < 40; ++turn) {
      const began = performance.now();
      set.call(field, `the animal did not cross the street because it was too tire${"dxyz"[turn % 4]}`);
      field.dispatchEvent(new InputEvent("input", { bubbles: true }));
      await new Promise((shown) => requestAnimationFrame(() => setTimeout(shown)));
      times.push(performance.now() - began);
    }
    return times;
  });
  said(`${step}, keystroke to numbers, 12 words, 8 heads`, keystrokes.slice(5), "ms");
  // A pointer that crosses cells, a new one each frame.
  const frames = await page.evaluate(async () => {
    const cells = [...document.querySelectorAll(".matrix td[data-col]")].slice(0, 144);
    const times = [];
    let last = performance.now();
    for (let turn = 0; turn < 150; ++turn) {
      cells[(turn * 13) % cells.length].dispatchEvent(new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse" }));
      await new Promise(requestAnimationFrame);
      times.push(performance.now() - last);
      last = performance.now();
    }
    return times;
  });
  said(`${step}, hovers`, frames.slice(10).map((time) => 1000 / time), "frames a second");
}
const steps = await page.evaluate(async () => {
  const times = [];
  for (let turn = 0; turn < 60; ++turn) {
    const began = performance.now();
    dispatchEvent(new KeyboardEvent("keydown", { key: turn % 20 < 10 ? "ArrowRight" : "ArrowLeft" }));
    await new Promise((shown) => requestAnimationFrame(() => setTimeout(shown)));
    times.push(performance.now() - began);
  }
  return times;
});
said("a step", steps.slice(5), "ms");
await close_browser();
