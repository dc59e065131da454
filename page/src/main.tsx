import { render } from "preact";
import { App } from "./app";
import { Engine } from "./engine";
import { content, start, taken } from "./start";

void start("the same, without switches", async (shown) => {
  const engine = await Engine.load(taken("engine"));
  render(<App engine={engine} embedded={content("request")} />, document.getElementById("app")!);
  shown.remove();
});
