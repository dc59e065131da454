import { render } from "preact";
import { App } from "./app";
import { Engine } from "./engine";
import { language } from "./language";
import { content, start, taken } from "./start";
import { sayLesson } from "./words/lesson";

document.documentElement.lang = language;
void start(sayLesson.page.cannotRun, async (shown) => {
  const engine = await Engine.load(taken("engine"));
  render(<App engine={engine} embedded={content("request")} />, document.getElementById("app")!);
  shown.remove();
});
