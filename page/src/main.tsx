import { render } from "preact";
import { App } from "./app";
import { Engine } from "./engine";

const content = (id: string): string => document.getElementById(id)!.textContent ?? "";

const gunzipped = async (base64: string): Promise<Uint8Array> => {
  const bytes = Uint8Array.from(atob(base64.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// What the file shows without a script stays until the engine runs: a browser that can't run it loses nothing.
const start = async (): Promise<void> => {
  const shown = document.getElementById("static")!;
  try {
    const engine = await Engine.load(await gunzipped(content("engine")));
    const host = document.getElementById("app")!;
    render(<App engine={engine} embedded={content("request")} />, host);
    shown.remove();
  } catch (error) {
    const note = document.createElement("p");
    note.className = "problem";
    note.textContent = `This browser can't run the page that computes (${String(error)}); what follows is the same, without switches.`;
    shown.prepend(note);
  }
};

void start();
