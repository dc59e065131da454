import { render } from "preact";
import { language } from "../language";
import { content, start } from "../start";
import type { Guided, Index } from "./numbers";
import { ExperimentPage, IndexPage } from "./page";
import { en } from "./words/en";
import { it } from "./words/it";
import { zh } from "./words/zh";

const words = { en, it, zh }[language];
document.documentElement.lang = language;
void start(words.cannotRun, async (shown) => {
  const request = JSON.parse(content("request")) as Guided | Index;
  document.title = request.id === "index" ? words.name : `${words.guides[request.id].title} - ${words.name}`;
  const page = document.getElementById("app")!;
  render(request.id === "index" ? <IndexPage index={request} words={words} /> : <ExperimentPage guided={request} words={words} />, page);
  shown.remove();
});
